//! Tests of the label stack's content after pushes and pops in any order.

use super::*;

const OTHER: ProfilingCategoryPair = ProfilingCategoryPair::Other(None);
const LABEL: FrameFlags = FrameFlags::NONE;

fn labels(stack: &ProfilingStack) -> Vec<String> {
    // SAFETY: the stack belongs to this test, and no push intervenes.
    let (frames, text) = unsafe { stack.contents_in_handler() };
    let text_of = |frame: &ProfilingStackFrame| frame.text_of_in_handler(text);
    let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    // SAFETY: these tests pushed the frame.
    let label_of = |frame: &ProfilingStackFrame| utf8(unsafe { frame.label_in_handler() });
    frames
        .iter()
        .map(|frame| label_of(frame) + &utf8(text_of(frame)))
        .collect()
}

#[test]
fn pop_removes_labels_and_texts() {
    let stack = ProfilingStack::new();
    stack.push(1, "lost: closed", OTHER, LABEL);
    assert!(labels(&stack).is_empty());
    stack.open();
    let outer = stack.push(1, "a", OTHER, LABEL);
    let inner = stack.push_with_text(1, "b ", OTHER, LABEL, "dynamic");
    assert_eq!(labels(&stack), ["a", "b dynamic"]);
    stack.pop_to(&inner);
    stack.push_with_text(1, "c ", OTHER, LABEL, "x");
    assert_eq!(labels(&stack), ["a", "c x"]);
    stack.pop_to(&outer);
    assert!(labels(&stack).is_empty());
    stack.close();
}

#[test]
fn late_or_unordered_tokens_do_not_corrupt_stack() {
    let stack = ProfilingStack::new();
    stack.open();
    let outer = stack.push_with_text(1, "outer", OTHER, LABEL, "o");
    let inner = stack.push_with_text(1, "inner", OTHER, LABEL, "i");
    stack.pop_to(&outer);
    stack.pop_to(&inner);
    assert!(labels(&stack).is_empty());
    let late = stack.push_with_text(1, "late", OTHER, LABEL, "l");
    stack.close();
    stack.pop_to(&late);
    stack.open();
    stack.push_with_text(1, "new", OTHER, LABEL, "n");
    assert_eq!(labels(&stack), ["newn"]);
    stack.close();
}

#[test]
fn late_token_keeps_texts_of_live_labels() {
    let stack = ProfilingStack::new();
    stack.open();
    let a = stack.push_with_text(1, "a ", OTHER, LABEL, "four");
    let b = stack.push_with_text(1, "b ", OTHER, LABEL, "text");
    stack.pop_to(&a);
    stack.push_with_text(1, "c ", OTHER, LABEL, "a long text that lives");
    stack.pop_to(&b);
    stack.push_with_text(1, "d ", OTHER, LABEL, "OVERWRITES");
    assert_eq!(labels(&stack), ["c a long text that lives", "d OVERWRITES"]);
    stack.close();
}

#[test]
fn push_with_text_grows_and_cuts_at_character() {
    let stack = ProfilingStack::new();
    stack.open();
    let long = "é".repeat(400);
    for _ in 0..1000 {
        stack.push_with_text(1, "", OTHER, LABEL, &long);
    }
    let all = labels(&stack);
    assert_eq!(all.len(), 1000);
    assert!(all.iter().all(|text| *text == "é".repeat(256)));
    let odd = format!("x{long}");
    stack.push_with_text(1, "", OTHER, LABEL, &odd);
    assert_eq!(labels(&stack)[1000].len(), 511);
    stack.close();
}

#[test]
fn texts_match_labels_for_any_token_order() {
    let stack = ProfilingStack::new();
    stack.open();
    let (mut model, mut tokens) = (Vec::<&str>::new(), Vec::new());
    let long = "y".repeat(300);
    let mut random = 1u64;
    for _ in 0..20_000 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let choice = (random >> 33) as usize;
        match choice % 8 {
            0 | 1 => tokens.push((stack.push(1, "", OTHER, LABEL), model.len())),
            2 => tokens.push((stack.push_script(1, at(2, 1)), model.len())),
            3 => tokens.push((
                stack.push_with_text(1, "", OTHER, LABEL, "text"),
                model.len(),
            )),
            4 => tokens.push((
                stack.push_with_text(1, "", OTHER, LABEL, &long),
                model.len(),
            )),
            // Mostly the newest token, sometimes any other; the last arm leaks one.
            5 | 6 if !tokens.is_empty() => {
                let used = if choice.is_multiple_of(3) {
                    (choice >> 3) % tokens.len()
                } else {
                    tokens.len() - 1
                };
                let (token, depth) = tokens.remove(used);
                stack.pop_to(&token);
                model.truncate(depth);
            }
            _ => drop(tokens.pop()),
        }
        if choice % 8 < 5 {
            model.push(["", "", "", "text", &long][choice % 8]);
        }
        assert_eq!(labels(&stack), model);
        let texts: usize = model.iter().map(|text| text.len()).sum();
        assert_eq!(stack.text_bytes.load(Ordering::Relaxed) as usize, texts);
    }
    stack.close();
}

#[test]
fn frames_and_texts_beyond_maximum_are_left_out() {
    let stack = ProfilingStack::new();
    stack.open();
    let outer = stack.push(1, "outer", OTHER, LABEL);
    let long = "x".repeat(MAX_DYNAMIC_BYTES);
    let fitting = MAX_TEXT_BYTES as usize / MAX_DYNAMIC_BYTES;
    for _ in 0..fitting {
        stack.push_with_text(1, "", OTHER, LABEL, &long);
    }
    stack.push_with_text(1, "text left out", OTHER, LABEL, "x");
    let all = labels(&stack);
    assert!(all.len() == fitting + 2 && all[1..=fitting].iter().all(|text| *text == long));
    assert_eq!([&all[0], &all[fitting + 1]], ["outer", "text left out"]);
    for number in fitting as u32 + 2..MAX_FRAMES {
        assert_ne!(
            stack.push_script(1, at(2, number)).depth,
            LabelToken::NONE.depth
        );
    }
    for lost in [
        stack.push_with_text(1, "lost", OTHER, LABEL, "x"),
        stack.push_script(1, at(2, 0)),
    ] {
        assert_eq!(lost.depth, LabelToken::NONE.depth);
        stack.pop_to(&lost);
    }
    assert_eq!(stack.depth.load(Ordering::Relaxed), MAX_FRAMES);
    stack.pop_to(&outer);
    stack.push_with_text(1, "new", OTHER, LABEL, " text");
    assert_eq!(labels(&stack), ["new text"]);
    stack.close();
}

/// Returns a text for each frame: the text of a label; the function, line and column of a script
/// frame.
fn frames(stack: &ProfilingStack) -> Vec<String> {
    // SAFETY: the stack belongs to this test, and no push intervenes.
    let (frames, _) = unsafe { stack.contents_in_handler() };
    let shown =
        |(frame, label): (&ProfilingStackFrame, String)| match frame.script_location_in_handler() {
            Some(place) => format!("{}:{}:{}", place.function(), place.line(), place.column()),
            None => label,
        };
    frames.iter().zip(labels(stack)).map(shown).collect()
}

fn at(function: u32, line: u32) -> ScriptLocation {
    ScriptLocation {
        position: ScriptLocation::position_of(line, 0),
        function,
    }
}

#[test]
fn script_frame_among_labels_changes_position() {
    let stack = ProfilingStack::new();
    let lost = stack.push_script(1, at(2, 1));
    stack.open();
    let outer = stack.push_script(1, at(2, 10));
    let label = stack.push_with_text(1, "label", OTHER, LABEL, " text");
    let inner = stack.push_script(1, at(3, u32::MAX));
    assert_eq!(
        frames(&stack),
        ["2:10:0", "label text", &format!("3:{}:0", u32::MAX)]
    );
    stack.set_script_position(&outer, ScriptLocation::position_of(11, 7));
    stack.set_script_position(&inner, ScriptLocation::position_of(30, u32::MAX));
    stack.set_script_position(&lost, 99);
    stack.pop_to(&lost);
    assert_eq!(
        frames(&stack),
        ["2:11:7", "label text", &format!("3:30:{}", u32::MAX)]
    );
    stack.pop_to(&inner);
    stack.pop_to(&label);
    assert_eq!(
        (frames(&stack), stack.text_bytes.load(Ordering::Relaxed)),
        (vec!["2:11:7".to_owned()], 0)
    );
    stack.close();
}

#[test]
fn late_position_update_leaves_label_unchanged() {
    let stack = ProfilingStack::new();
    stack.open();
    let gone = stack.push_script(1, at(2, 10));
    stack.pop_to(&gone);
    stack.set_script_position(&gone, 5);
    stack.push(1, "label", OTHER, LABEL);
    stack.set_script_position(&gone, 6);
    assert_eq!(frames(&stack), ["label"]);
    stack.pop_to(&gone);
    stack.push_script(1, at(4, 1));
    assert_eq!(frames(&stack), ["4:1:0"]);
    stack.close();
    stack.set_script_position(&gone, 7);
}

#[test]
fn deep_script_recursion_pops_at_once() {
    let stack = ProfilingStack::new();
    stack.open();
    let outermost = stack.push_script(1, at(2, 1));
    for line in 0..100_000 {
        stack.push_script(1, at(3, line));
    }
    assert_eq!(frames(&stack).last().map(String::as_str), Some("3:99999:0"));
    stack.set_script_position(&outermost, 5);
    assert_eq!(frames(&stack)[..2], ["2:5:0", "3:0:0"]);
    stack.pop_to(&outermost);
    assert!(frames(&stack).is_empty());
    stack.close();
}
