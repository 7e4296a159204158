//! Tests of [`Waits`](super::Waits).

use super::*;

const NONE: ContextWords = ContextWords::NONE;

fn name(label: &str) -> TaskName<'_> {
    TaskName { label, dynamic: "" }
}

fn waits() -> Waits {
    Waits::with_space(20_000, 30_000).expect("memory")
}

fn at(us: u64) -> TimeStamp {
    TimeStamp(us * 1_000)
}

impl Waits {
    fn wait(&mut self, stack: u32, from: TimeStamp, to: TimeStamp) {
        let place = self.begin(stack, from, NONE);
        self.end(place, to);
    }

    fn weight_ns(&self, stack: u32) -> u64 {
        let rows = self.rows.iter().filter(|row| row.stack == stack);
        rows.map(|row| row.weight_ns).sum()
    }
}

#[test]
fn rows_of_a_stack_add_up_to_its_waits_less_a_period() {
    let mut waits = waits();
    let [short, long] = ["short", "long"].map(|label| waits.stacks.number(0, name(label)));
    // 300 µs each: every fourth or third has a row.
    for number in 0..1_000 {
        waits.wait(short, at(number * 2_000), at(number * 2_000 + 300));
        waits.wait(long, at(number * 2_000), at(number * 2_000 + 1_700));
        let truth = (number + 1) * 300_000;
        let missing = truth - waits.weight_ns(short);
        assert!(missing < waits.period_ns, "{missing}");
    }
    assert!(waits.account_all(at(3_000_000)));
    assert_eq!(waits.weight_ns(short), 300_000_000);
    assert_eq!(waits.weight_ns(long), 1_700_000_000);
}

#[test]
fn period_doubles_beyond_the_rows_of_a_second_and_no_time_is_lost() {
    let mut waits = waits();
    let stacks: Vec<_> = (0..10)
        .map(|number| waits.stacks.number(0, name(&number.to_string())))
        .collect();
    let mut places = Vec::new();
    for stack in &stacks {
        for _ in 0..1_000 {
            places.push(waits.begin(*stack, at(0), NONE));
        }
    }
    for place in places {
        waits.end(place, at(5_000));
    }
    assert_eq!(waits.period_ns, 16 * FIRST_PERIOD_NS);
    assert!(waits.rows.len() < MAX_ROWS);
    for stack in &stacks {
        assert!(waits.weight_ns(*stack).abs_diff(5_000_000_000) < waits.period_ns);
    }
    assert!(waits.account_all(at(5_000)));
    for stack in stacks {
        assert_eq!(waits.weight_ns(stack), 5_000_000_000);
    }
}

#[test]
fn full_list_of_rows_delays_time() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    waits.rows.resize(
        MAX_ROWS,
        WaitRow {
            stack: 0,
            time: at(0),
            weight_ns: 0,
            interval_ns: 0,
            context: NONE,
        },
    );
    waits.wait(stack, at(0), at(7_000));
    assert_eq!(waits.weight_ns(stack), 0);
    waits.rows.clear();
    waits.wait(stack, at(7_000), at(8_000));
    assert_eq!(waits.weight_ns(stack), 8_000_000);
}

#[test]
fn waits_that_last_are_counted_once() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    let place = waits.begin(stack, at(0), NONE);
    waits.account(at(400));
    assert_eq!(waits.weight_ns(stack), 0);
    waits.account(at(2_500));
    assert_eq!(waits.weight_ns(stack), 2_000_000);
    waits.account_all(at(2_600));
    assert_eq!(waits.weight_ns(stack), 2_600_000);
    waits.end(place, at(3_000));
    waits.end(place, at(9_000));
    waits.account_all(at(9_000));
    assert_eq!(waits.weight_ns(stack), 3_000_000);
    assert_eq!(waits.waiting_stacks(), Vec::<String>::new());
}

#[test]
fn pause_is_left_out() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    let places = [0, 0].map(|_| waits.begin(stack, at(0), NONE));
    waits.set_paused(at(2_000), true);
    waits.set_paused(at(2_500), true);
    waits.wait(stack, at(3_000), at(50_000));
    waits.end(places[0], at(60_000));
    waits.set_paused(at(100_000), false);
    waits.end(places[1], at(101_000));
    assert_eq!(waits.weight_ns(stack), 5_000_000);
}

#[test]
fn places_are_used_again() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    let places: Vec<_> = (0..3).map(|_| waits.begin(stack, at(0), NONE)).collect();
    assert_eq!(places, [1, 2, 3]);
    waits.end(2, at(1));
    waits.end(1, at(1));
    let again: Vec<_> = (0..3).map(|_| waits.begin(stack, at(0), NONE)).collect();
    assert_eq!(again, [1, 2, 4]);
}

#[test]
fn long_wait_is_an_interval_and_a_lasting_one_continues() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    let intervals = |waits: &Waits| -> Vec<u64> {
        let rows = waits.rows.iter().filter(|row| row.interval_ns > 0);
        rows.map(|row| row.interval_ns / 1_000).collect()
    };
    waits.wait(stack, at(0), at(9_999));
    assert!(intervals(&waits).is_empty());
    let place = waits.begin(stack, at(0), NONE);
    waits.account_all(at(5_000));
    assert!(intervals(&waits).is_empty());
    waits.account_all(at(30_000));
    waits.end(place, at(80_000));
    assert_eq!(intervals(&waits), [30_000, 50_000]);
    // In a second with many intervals, a wait must be longer.
    for _ in 0..10 * INTERVALS_TO_DOUBLE {
        waits.wait(stack, at(80_000), at(100_000));
    }
    assert_eq!(intervals(&waits).len(), 2 * INTERVALS_TO_DOUBLE as usize);
    waits.wait(stack, at(80_000), at(120_000));
    assert_eq!(intervals(&waits).last(), Some(&40_000));
    waits.wait(stack, at(2_000_000), at(2_010_000));
    assert_eq!(intervals(&waits).last(), Some(&10_000));
}

fn context(number: u64) -> ContextWords {
    ContextWords {
        span: number,
        ..NONE
    }
}

#[test]
fn wait_with_a_context_is_an_interval_from_a_tenth_on() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    for number in 0..300 {
        let place = waits.begin(stack, at(0), context(number % 2));
        waits.end(place, at(10_000));
    }
    let intervals = waits.rows.iter().filter(|row| row.interval_ns > 0);
    let with_context = intervals.clone().filter(|row| row.context != NONE);
    // 25 of both kinds, and then up to 8 ms.
    assert_eq!((intervals.count(), with_context.count()), (100, 87));
    assert_eq!(waits.losses().intervals, 200);
    let place = waits.begin(stack, at(2_000_000), context(1));
    waits.end(place, at(2_000_999));
    let place = waits.begin(stack, at(2_000_000), context(1));
    waits.end(place, at(2_001_000));
    let last = waits.rows.last().map(|row| row.interval_ns);
    assert_eq!((last, waits.losses().intervals), (Some(1_000_000), 200));
}

#[test]
fn lasting_waits_without_an_interval_are_counted_once() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    let places: Vec<_> = (0..150).map(|_| waits.begin(stack, at(0), NONE)).collect();
    assert!(waits.account_all(at(20_000)));
    assert_eq!(waits.losses().intervals, 100);
    assert!(waits.account_all(at(20_001)));
    assert_eq!(waits.losses().intervals, 100);
    for place in places {
        waits.end(place, at(20_002));
    }
    assert!(waits.account_all(at(20_003)));
    assert_eq!(waits.losses().intervals, 100);
    assert_eq!(waits.weight_ns(stack), 150 * 20_002_000);
}

#[test]
fn period_falls_after_a_burst_and_profiles_do_not_raise_it() {
    let mut waits = waits();
    let stacks: Vec<_> = (0..10_000)
        .map(|number| waits.stacks.number(0, name(&number.to_string())))
        .collect();
    let places: Vec<_> = stacks
        .iter()
        .map(|stack| waits.begin(*stack, at(0), NONE))
        .collect();
    for time in 1..20 {
        assert!(waits.account_all(at(time * 100)));
        assert_eq!(waits.period_ns, FIRST_PERIOD_NS);
        waits.rows.clear();
    }
    for place in places {
        waits.end(place, at(9_000));
    }
    assert!(waits.period_ns > FIRST_PERIOD_NS);
    for second in 2..9 {
        waits.wait(
            stacks[0],
            at(second * 1_000_000),
            at(second * 1_000_000 + 1_000),
        );
    }
    assert_eq!(waits.period_ns, FIRST_PERIOD_NS);
}

#[test]
fn more_stacks_than_rows_are_accounted_in_several_passes() {
    let mut waits = waits();
    let stacks: Vec<_> = (0..MAX_ROWS + 1_000)
        .map(|number| waits.stacks.number(0, name(&number.to_string())))
        .collect();
    for stack in &stacks {
        waits.wait(*stack, at(0), at(300));
    }
    assert!(waits.rows.is_empty());
    let mut written = Vec::new();
    while !waits.account_all(at(500)) {
        written.append(&mut waits.rows);
        waits.rows.reserve_exact(MAX_ROWS);
    }
    written.append(&mut waits.rows);
    assert_eq!(written.len(), stacks.len());
    // Each row is where its stack has waited, not where the profile was taken.
    assert!(
        written
            .iter()
            .all(|row| row.weight_ns == 300_000 && row.time == at(300))
    );
}

#[test]
fn rest_of_a_stack_that_waits_no_more_has_a_row_in_the_next_second() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    waits.wait(stack, at(0), at(300));
    waits.account(at(600_000));
    assert_eq!(waits.weight_ns(stack), 0);
    waits.account(at(1_600_000));
    let rows: Vec<_> = waits
        .rows
        .iter()
        .map(|row| (row.time, row.weight_ns))
        .collect();
    assert_eq!(rows, [(at(300), 300_000)]);
}

#[test]
fn waits_without_space_are_counted() {
    let mut waits = Waits::with_space(2, 10).expect("memory");
    let stack = waits.stacks.number(0, name("one"));
    let places = [0; 4].map(|_| waits.begin(stack, at(0), NONE));
    assert_eq!(places, [1, 2, 0, 0]);
    for place in places {
        waits.end(place, at(5));
    }
    waits.forget(1);
    assert_eq!(waits.losses().waits, 2);
}

#[test]
fn time_that_steps_back_is_no_time() {
    let mut waits = waits();
    let stack = waits.stacks.number(0, name("one"));
    waits.wait(stack, at(500), at(300));
    let place = waits.begin(stack, at(500), NONE);
    assert!(waits.account_all(at(400)));
    waits.end(place, at(450));
    waits.account_all(at(400));
    assert_eq!(waits.weight_ns(stack), 0);
}

#[test]
fn equal_stacks_share_a_number_and_too_many_become_other() {
    let mut stacks = TaskStacks::with_space(5).expect("memory");
    let outer = stacks.number(0, name("outer"));
    let inner = stacks.number(outer, name("inner"));
    assert_eq!(stacks.number(0, name("outer")), outer);
    assert_eq!(stacks.number(outer, name("inner")), inner);
    assert_ne!(stacks.number(0, name("inner")), inner);
    assert_eq!(stacks.text(inner), "outer → inner");
    let other = stacks.number(outer, name("new"));
    assert_eq!(stacks.text(other), OTHER);
    assert_eq!(stacks.number(other, name("inner")), other);
    assert_eq!(stacks.number(outer, name("inner")), inner);
}

#[test]
fn texts_made_at_run_time_leave_space_for_labels() {
    let mut stacks = TaskStacks::with_space(100).expect("memory");
    let mut last = 0;
    for number in 0..1_000 {
        let dynamic = &format!("request {number}");
        let label = "look_up";
        last = stacks.number(0, TaskName { label, dynamic });
    }
    assert_eq!(stacks.text(last), "look_up");
    let known = TaskName {
        label: "look_up",
        dynamic: "request 7",
    };
    let known = stacks.number(0, known);
    assert_eq!(stacks.text(known), "look_up request 7");
    let inner = stacks.number(last, name("pool.get"));
    assert_eq!(stacks.text(inner), "look_up → pool.get");
}

#[test]
fn long_texts_are_cut_and_nothing_is_allocated() {
    let mut stacks = TaskStacks::with_space(1_000).expect("memory");
    let space = |stacks: &TaskStacks| {
        let slots = stacks.by_name.slots();
        (stacks.stacks.capacity(), stacks.texts.capacity(), slots)
    };
    let before = space(&stacks);
    for number in 0..2_000 {
        let long = format!("{number} {}", "µ".repeat(200));
        let stack = stacks.number(
            0,
            TaskName {
                label: &long,
                dynamic: &long,
            },
        );
        assert!(stacks.text(stack).len() <= 2 * MAX_PART_BYTES + 1);
    }
    assert_eq!(before, space(&stacks));
}
