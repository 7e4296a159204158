use super::*;
use crate::export::write::formats::test_chrome_profile::{
    busy_profile, empty_profile, push_sample, self_and_total,
};

fn written(profile: &ProfileModel) -> String {
    let mut out = Vec::new();
    write_js_self_profile(profile, &ExportOptions::default(), &mut out).expect("written");
    String::from_utf8(out).expect("text")
}

#[test]
fn small_profile_has_definitions_and_no_nulls() {
    let mut profile = empty_profile();
    push_sample(&mut profile, -1_500_000, Some(&["main@5", "memcpy"]));
    push_sample(&mut profile, 2_500_000, Some(&["main@5", "wait"]));
    push_sample(&mut profile, 3_000_000, Some(&["main@5"]));
    push_sample(&mut profile, 4_000_000, None);
    let expected = concat!(
        r#"{"frames":[{"name":"main","resourceId":0,"line":5,"column":4},{"name":"memcpy"}],"#,
        r#""resources":["/src/main.rs"],"#,
        r#""samples":[{"stackId":1,"timestamp":-1.5},{"timestamp":2.5},"#,
        r#"{"stackId":0,"timestamp":3},{"timestamp":4}],"#,
        r#""stacks":[{"frameId":0},{"frameId":1,"parentId":0}]}"#,
    );
    assert_eq!(written(&profile), expected);
}

#[test]
fn functions_that_look_the_same_are_one_frame() {
    let mut profile = empty_profile();
    push_sample(&mut profile, 0, Some(&["main", "memcpy"]));
    // A function of the same name in a module.
    let (name, main) = (profile.intern("memcpy"), profile.intern("main"));
    let other = crate::model::Function {
        module: Some(crate::model::ModuleId(0)),
        ..crate::model::Function::new(name, crate::model::FunctionKind::Native)
    };
    let main = crate::model::Function::new(main, crate::model::FunctionKind::Native);
    let main = profile.intern_function(main);
    let other = profile.intern_function(other);
    let main = profile.intern_frame(&crate::model::Frame::new(main));
    let other = profile.intern_frame(&crate::model::Frame::new(other));
    let prefix = profile.append_frame(None, main);
    let stack = profile.append_frame(Some(prefix), other);
    let mut sample = profile.threads[0].samples.get(0);
    sample.stack = Some(stack);
    profile.threads[0].samples.push(sample);
    let file: serde_json::Value = serde_json::from_str(&written(&profile)).expect("JSON");
    assert_eq!(file["frames"].as_array().map(Vec::len), Some(2));
    assert_eq!(file["stacks"].as_array().map(Vec::len), Some(2));
    assert_eq!(file["samples"][0]["stackId"], file["samples"][1]["stackId"]);
}

#[test]
fn self_counts_agree_with_the_samples() {
    let profile = busy_profile(1_000);
    let file: serde_json::Value = serde_json::from_str(&written(&profile)).expect("JSON");
    let mut counts = std::collections::BTreeMap::new();
    for sample in file["samples"].as_array().expect("a list") {
        if let Some(stack) = sample["stackId"].as_u64() {
            let frame = file["stacks"][stack as usize]["frameId"]
                .as_u64()
                .expect("an id");
            let name = file["frames"][frame as usize]["name"]
                .as_str()
                .expect("a name");
            *counts.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    let expected = self_and_total(&profile).into_iter();
    let expected = expected.map(|(name, (own, _))| (name, own));
    let expected = expected.filter(|(name, own)| *own > 0 && !name.starts_with('('));
    assert!(counts.into_iter().eq(expected));
}
