//! The macros. They expand to public items and hold no logic.

/// A category: `gecko_profiler_category!(Network)`, or with its subcategory `gecko_profiler_category!(JavaScript, Parsing)`.
#[macro_export]
macro_rules! gecko_profiler_category {
    ($category:ident) => {
        $crate::ProfilingCategoryPair::$category(::core::option::Option::None)
    };
    ($category:ident, $subcategory:ident) => {
        $crate::ProfilingCategoryPair::$category(::core::option::Option::Some(
            $crate::subcategories::$category::$subcategory,
        ))
    };
}

/// A label for the rest of the scope: `auto_profiler_label!("decode", Media, Playback)`.
#[doc(alias = "AUTO_PROFILER_LABEL")]
#[macro_export]
macro_rules! auto_profiler_label {
    ($label:expr, $($category:ident),+ $(,)?) => {
        let _auto_profiler_label =
            $crate::AutoProfilerLabel::new($label, $crate::gecko_profiler_category!($($category),+));
    };
}

/// A label with a text that is copied, for the rest of the scope: `auto_profiler_label_dynamic!("load", path, Network)`.
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR")]
#[macro_export]
macro_rules! auto_profiler_label_dynamic {
    ($label:expr, $dynamic:expr, $($category:ident),+ $(,)?) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_dynamic(
            $label,
            $dynamic,
            $crate::gecko_profiler_category!($($category),+),
        );
    };
}

/// As [`auto_profiler_label!`], and the viewer shows it among the frames of scripts, too:
/// `auto_profiler_label_relevant_for_js!("fetch", Network)`.
#[doc(alias = "AUTO_PROFILER_LABEL_RELEVANT_FOR_JS")]
#[macro_export]
macro_rules! auto_profiler_label_relevant_for_js {
    ($label:expr, $($category:ident),+ $(,)?) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::relevant_for_js(
            $label,
            $crate::gecko_profiler_category!($($category),+),
        );
    };
}

/// As [`auto_profiler_label_dynamic!`], and the viewer shows it among the frames of scripts, too:
/// `auto_profiler_label_dynamic_relevant_for_js!("rule", rule.name(), JavaScript)`.
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR_RELEVANT_FOR_JS")]
#[macro_export]
macro_rules! auto_profiler_label_dynamic_relevant_for_js {
    ($label:expr, $dynamic:expr, $($category:ident),+ $(,)?) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::relevant_for_js_with_dynamic(
            $label,
            $dynamic,
            $crate::gecko_profiler_category!($($category),+),
        );
    };
}

/// An interval marker with a text, for the rest of the scope:
/// `auto_profiler_marker_text!("Request", gecko_profiler_category!(Network), MarkerOptions::default(), url)`.
#[doc(alias = "AUTO_PROFILER_MARKER_TEXT")]
#[macro_export]
macro_rules! auto_profiler_marker_text {
    ($name:expr, $category:expr, $options:expr, $text:expr $(,)?) => {
        let _auto_profiler_marker = $crate::AutoProfilerTextMarker::new($name, $category, $options, $text);
    };
}
