"""Checks Perfetto traces; see the script `perfetto` beside this file."""

import argparse
import os
import sys
import warnings

warnings.filterwarnings("ignore")
from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
# The tables of interned data, with those that their entries refer to.
TABLES = [
    "event_categories", "event_names", "debug_annotation_names", "function_names", "build_ids",
    "mapping_paths", "source_paths", "mappings", "frames", "callstacks",
]


class Refused(Exception):
    """The trace is not what a reader needs."""


def require(condition, message):
    if not condition:
        raise Refused(message)


def check_known(message, where):
    """Requires that a message and all messages in it have only fields that Perfetto knows."""
    unknown = unknown_fields.UnknownFieldSet(message)
    numbers = [unknown[index].field_number for index in range(len(unknown))]
    require(not numbers, f"{where}: got the unknown fields {numbers}, expected none")
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in [value] if hasattr(value, "ListFields") else value:
                check_known(one, f"{where}.{field.name}")


class Trace:
    def __init__(self):
        self.tables = {name: {} for name in TABLES}
        self.tracks = {}
        self.open = {}
        self.last = {}
        self.samples = self.stacks = self.slices = self.instants = self.values = 0
        self.threads = set()

    def get(self, table, iid):
        require(iid in self.tables[table], f"{table} has no {iid} when it is used")
        return self.tables[table][iid]

    def packet(self, packet, index):
        state = 1 if index == 0 else 2
        require(packet.trusted_packet_sequence_id != 0, "a packet has no sequence")
        require(packet.sequence_flags == state, f"got flags {packet.sequence_flags}, expected {state}")
        for name in TABLES:
            for entry in getattr(packet.interned_data, name):
                require(entry.iid != 0, f"{name}: got the iid 0")
                require(entry.iid not in self.tables[name], f"{name}: got {entry.iid} twice")
                self.tables[name][entry.iid] = entry
        for frame in packet.interned_data.frames:
            self.get("function_names", frame.function_name_id)
            if frame.mapping_id:
                self.get("mappings", frame.mapping_id)
                require(frame.HasField("rel_pc"), "a frame of a mapping has no rel_pc")
            if frame.HasField("source_path_iid"):
                self.get("source_paths", frame.source_path_iid)
        for mapping in packet.interned_data.mappings:
            self.get("build_ids", mapping.build_id)
            for path in mapping.path_string_ids:
                self.get("mapping_paths", path)
        for stack in packet.interned_data.callstacks:
            require(stack.frame_ids, "a stack has no frames")
            for frame in stack.frame_ids:
                self.get("frames", frame)
        if packet.HasField("track_descriptor"):
            self.track(packet.track_descriptor)
        if packet.HasField("stack_sample"):
            self.sample(packet.stack_sample)
        if packet.HasField("track_event"):
            self.event(packet.track_event, packet.timestamp)

    def track(self, track):
        require(track.uuid not in self.tracks, f"track {track.uuid} is described twice")
        if track.HasField("parent_uuid"):
            require(track.parent_uuid in self.tracks, f"track {track.uuid} comes before its parent")
        if track.HasField("thread"):
            self.threads.add((track.thread.pid, track.thread.tid))
        self.tracks[track.uuid] = track

    def sample(self, sample):
        self.samples += 1
        task = sample.task_context
        require((task.pid, task.tid) in self.threads, f"thread {task.pid}/{task.tid} is not described")
        require(sample.HasField("primary_weight"), "a sample has no weight")
        if sample.HasField("callstack_iid"):
            self.get("callstacks", sample.callstack_iid)
            self.stacks += 1

    def event(self, event, time):
        require(event.track_uuid in self.tracks, f"track {event.track_uuid} is not described")
        for category in event.category_iids:
            self.get("event_categories", category)
        for annotation in event.debug_annotations:
            self.get("debug_annotation_names", annotation.name_iid)
        if event.HasField("callstack_iid"):
            self.get("callstacks", event.callstack_iid)
        if event.type == COUNTER:
            require(self.tracks[event.track_uuid].HasField("counter"), "a value is not on a counter's track")
            self.values += 1
            return
        if event.type != END:
            self.get("event_names", event.name_iid)
        if event.type == INSTANT:
            self.instants += 1
            return
        open_slices = self.open.setdefault(event.track_uuid, [])
        require(time >= self.last.get(event.track_uuid, 0), "the slices of a track are not in order")
        self.last[event.track_uuid] = time
        if event.type == BEGIN:
            open_slices.append(time)
            self.slices += 1
        else:
            require(open_slices, "a slice ends that has not begun")
            open_slices.pop()


def ask_trace_processor(program, path, trace):
    """Compares what the trace processor loaded with what the file holds."""
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=program)) as processor:
        def count(query):
            return next(iter(processor.query(query))).n

        got = {
            "samples": count("select count(*) n from profiler_sample"),
            "stacks": count("select count(*) n from profiler_sample where callsite_id is not null"),
            "slices": count("select count(*) n from slice where dur >= 0 and category is not null"),
            "errors": count("select coalesce(sum(value), 0) n from stats where severity = 'error'"),
        }
    want = {
        "samples": trace.samples, "stacks": trace.stacks,
        "slices": trace.slices + trace.instants, "errors": 0,
    }
    require(got == want, f"the trace processor has {got}, expected {want}")


def check(path, arguments):
    with open(path, "rb") as file:
        packets = proto.Trace.FromString(file.read())
    require(packets.packet, "got no packets")
    check_known(packets, "Trace")
    trace = Trace()
    for index, packet in enumerate(packets.packet):
        trace.packet(packet, index)
    require(not any(trace.open.values()), "a slice does not end")
    defaults = packets.packet[0].trace_packet_defaults.stack_sample_defaults
    require(defaults.primary_descriptor.name, "the samples have no default counter")
    for name, want in [("samples", arguments.samples), ("slices", arguments.slices)]:
        got = getattr(trace, name)
        require(want is None or got == want, f"got {got} {name}, expected {want}")
    program = os.environ.get("TRACE_PROCESSOR")
    if program:
        ask_trace_processor(program, path, trace)
    else:
        print("!!! SKIPPED: no trace processor, so only the structure is checked")
    print(f"{path}: {trace.samples} samples ({trace.stacks} with a stack), {trace.slices} slices, "
          f"{trace.instants} instants, {trace.values} values of counters")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--slices", type=int)
    arguments = parser.parse_args()
    for path in arguments.files:
        try:
            check(path, arguments)
        except Exception as error:
            sys.exit(f"perfetto: {path}: {error}")


main()
