"""Checks what was pushed; see the script `pushed` beside this file."""

import ast
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2


class Refused(Exception):
    """The file is not what the published messages say."""


def require(condition, message):
    if not condition:
        raise Refused(message)


def pprof_message(packages):
    """Returns the class of pprof's `Profile`, from the descriptor in the generated code of pypprof.

    That code is for an older `protobuf`, so it is read and not run. It is older than `Line.column`,
    which no published descriptor has, and which is added here as pprof's own `profile.proto` has it.
    """
    code = ast.parse((packages / "pypprof" / "profile_pb2.py").read_text())
    texts = [
        # `_b` turns a text of Latin-1 into bytes.
        keyword.value.args[0].value.encode("latin1")
        for call in ast.walk(code) if isinstance(call, ast.Call)
        for keyword in call.keywords if keyword.arg == "serialized_pb"
    ]
    file = descriptor_pb2.FileDescriptorProto.FromString(texts[0])
    line = next(message for message in file.message_type if message.name == "Line")
    require(all(field.number != 3 for field in line.field), "pypprof has `Line.column`, expected none")
    field = descriptor_pb2.FieldDescriptorProto
    line.field.add(name="column", number=3, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Profile"))


def check_known(message, where):
    """Requires that a message and all messages in it have only known fields. Counts them."""
    unknown = unknown_fields.UnknownFieldSet(message)
    numbers = [unknown[index].field_number for index in range(len(unknown))]
    require(not numbers, f"{where}: got the unknown fields {numbers}, expected none")
    count = 0
    for field, value in message.ListFields():
        count += 1
        if field.type == field.TYPE_MESSAGE:
            for one in [value] if hasattr(value, "ListFields") else value:
                count += check_known(one, f"{where}.{field.name}")
    return count


def check_indices(message, tables, where):
    """Requires that each index of OpenTelemetry's messages leads into its table."""
    names = {
        "strindex": "string_table", "stack_index": "stack_table", "link_index": "link_table",
        "attribute_indices": "attribute_table", "location_indices": "location_table",
        "mapping_index": "mapping_table", "function_index": "function_table",
    }
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in [value] if hasattr(value, "ListFields") else value:
                check_indices(one, tables, f"{where}.{field.name}")
            continue
        table = next((names[end] for end in names if field.name.endswith(end)), None)
        if table is not None:
            for index in [value] if isinstance(value, int) else value:
                length = len(getattr(tables, table))
                require(0 <= index < length, f"{where}.{field.name}: got {index}, expected less than {length}")


def check_otlp(request):
    tables = request.dictionary
    for field in tables.DESCRIPTOR.fields:
        table = getattr(tables, field.name)
        require(len(table) > 0, f"{field.name} lacks its first element")
        first = table[0] if isinstance(table[0], str) else table[0].SerializeToString()
        require(not first, f"the first element of {field.name} is not empty")
    check_indices(request, tables, "request")
    scopes = [scope for resource in request.resource_profiles for scope in resource.scope_profiles]
    profiles = [profile for scope in scopes for profile in scope.profiles]
    require(profiles, "got no profile")
    return sum(len(profile.samples) for profile in profiles)


def check_pprof(profile):
    texts = len(profile.string_table)
    require(texts and profile.string_table[0] == "", "the first text is not empty")
    ids = {name: {one.id for one in getattr(profile, name)} for name in ["mapping", "location", "function"]}
    for location in profile.location:
        require(location.mapping_id == 0 or location.mapping_id in ids["mapping"], "an unknown mapping")
        require(all(line.function_id in ids["function"] for line in location.line), "an unknown function")
    for sample in profile.sample:
        require(set(sample.location_id) <= ids["location"], "an unknown location")
        require(len(sample.value) == len(profile.sample_type), "a sample lacks a value")
        require(all(0 < label.key < texts for label in sample.label), "a label has no key")
    for function in profile.function:
        require(0 < function.name < texts, "a function has no name")
    return len(profile.sample)


def main():
    packages, folder = (Path(argument) for argument in sys.argv[1:])
    kinds = {
        "otlp": (profiles_service_pb2.ExportProfilesServiceRequest, check_otlp),
        "pprof": (pprof_message(packages), check_pprof),
    }
    for kind, (message_class, check) in kinds.items():
        files = sorted(folder.glob(f"*.{kind}"))
        require(files, f"{folder} has no file that ends in .{kind}")
        fields = samples = size = 0
        for file in files:
            try:
                content = file.read_bytes()
                message = message_class.FromString(content)
                fields += check_known(message, kind)
                again = message.SerializeToString(deterministic=True)
                require(again == content, f"got {len(again)} other bytes, expected the same {len(content)}")
                samples += check(message)
                size += len(content)
            except Exception as error:
                raise Refused(f"{file}: {error}") from error
        require(samples, f"the files that end in .{kind} have no sample")
        print(f"{kind}: {len(files)} files, {size} bytes, {fields} known fields, {samples} samples")


try:
    main()
except Refused as error:
    print(f"pushed: {error}", file=sys.stderr)
    sys.exit(1)
