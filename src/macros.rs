//! The macros: labels, markers, categories. They expand to public items and hold no logic. Types of markers are
//! made by `markers/marker_type.rs`.

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

/// A category as labels are given one: names of Gecko's list, or an expression.
#[doc(hidden)]
#[macro_export]
macro_rules! __category {
    ($category:ident $(,)?) => {
        $crate::gecko_profiler_category!($category)
    };
    ($category:ident, $subcategory:ident $(,)?) => {
        $crate::gecko_profiler_category!($category, $subcategory)
    };
    ($category:expr $(,)?) => {
        $category
    };
}

/// A label for the rest of the scope: `auto_profiler_label!("decode", Media, Playback)`, or with a category of the host's,
/// `auto_profiler_label!("parse", Requests::Parsing)`. As the first line of a function it is one for the whole function; so is
/// [`gecko_profiler_fn_label`](crate::gecko_profiler_fn_label).
#[doc(alias = "AUTO_PROFILER_LABEL")]
#[macro_export]
macro_rules! auto_profiler_label {
    ($label:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::new($label, $crate::__category!($($category)+));
    };
}

/// The same, only if the profiler is active when the scope begins: where a nanosecond counts.
#[doc(alias = "AUTO_PROFILER_LABEL_HOT")]
#[macro_export]
macro_rules! auto_profiler_label_hot {
    ($label:expr, $($category:tt)+) => {
        let _auto_profiler_label = if $crate::is_active() {
            ::core::option::Option::Some($crate::AutoProfilerLabel::new(
                $label,
                $crate::__category!($($category)+),
            ))
        } else {
            ::core::option::Option::None
        };
    };
}

/// A label for the rest of the scope whose text is its subcategory's: `auto_profiler_label_category_pair!(Layout, Reflow)`.
#[doc(alias = "AUTO_PROFILER_LABEL_CATEGORY_PAIR")]
#[macro_export]
macro_rules! auto_profiler_label_category_pair {
    ($($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::of_category($crate::__category!($($category)+));
    };
}

/// The same, and the viewer shows it among the frames of scripts, too.
#[doc(alias = "AUTO_PROFILER_LABEL_CATEGORY_PAIR_RELEVANT_FOR_JS")]
#[macro_export]
macro_rules! auto_profiler_label_category_pair_relevant_for_js {
    ($($category:tt)+) => {
        let category = $crate::__category!($($category)+);
        let _auto_profiler_label = $crate::AutoProfilerLabel::relevant_for_js(category.label(), category);
    };
}

/// A label for the rest of the scope, if the profiler is active when it begins, as Mozilla's crate has it: its text is its
/// subcategory's. `gecko_profiler_label!(JavaScript, Parsing)`, or with an expression.
#[macro_export]
macro_rules! gecko_profiler_label {
    ($($category:tt)+) => {
        let _gecko_profiler_label = if $crate::is_active() {
            ::core::option::Option::Some($crate::AutoProfilerLabel::of_category(
                $crate::__category!($($category)+),
            ))
        } else {
            ::core::option::Option::None
        };
    };
}

/// A label with a text that is copied, for the rest of the scope: `auto_profiler_label_dynamic!("load", path, Network)`.
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR")]
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_NSCSTRING")]
#[macro_export]
macro_rules! auto_profiler_label_dynamic {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label =
            $crate::AutoProfilerLabel::with_dynamic($label, $dynamic, $crate::__category!($($category)+));
    };
}

/// The same with a text in UTF-16, of which what is none becomes U+FFFD.
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_LOSSY_NSSTRING")]
#[macro_export]
macro_rules! auto_profiler_label_dynamic_utf16 {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label =
            $crate::AutoProfilerLabel::with_dynamic_utf16($label, $dynamic, $crate::__category!($($category)+));
    };
}

/// The same with a text that nobody need keep from whom he shows stacks to.
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR_NONSENSITIVE")]
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_NSCSTRING_NONSENSITIVE")]
#[macro_export]
macro_rules! auto_profiler_label_dynamic_nonsensitive {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_flags(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
            $crate::LabelFlags::NONSENSITIVE,
        );
    };
}

/// A label of a method that is called on an object of a script's, `Class.method`: the label is the class, the dynamic text the
/// method. `auto_profiler_label_method!("Element", "append", DOM)`.
#[doc(alias = "STRING_TEMPLATE_METHOD")]
#[macro_export]
macro_rules! auto_profiler_label_method {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_flags(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
            $crate::LabelFlags::METHOD,
        );
    };
}

/// The same of a property that is read: `get Class.property`.
#[doc(alias = "STRING_TEMPLATE_GETTER")]
#[macro_export]
macro_rules! auto_profiler_label_getter {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_flags(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
            $crate::LabelFlags::GETTER,
        );
    };
}

/// The same of a property that is set: `set Class.property`.
#[doc(alias = "STRING_TEMPLATE_SETTER")]
#[macro_export]
macro_rules! auto_profiler_label_setter {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_flags(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
            $crate::LabelFlags::SETTER,
        );
    };
}

/// As [`auto_profiler_label!`], and the viewer shows it among the frames of scripts, too:
/// `auto_profiler_label_relevant_for_js!("fetch", Network)`.
#[doc(alias = "AUTO_PROFILER_LABEL_RELEVANT_FOR_JS")]
#[macro_export]
macro_rules! auto_profiler_label_relevant_for_js {
    ($label:expr, $($category:tt)+) => {
        let _auto_profiler_label =
            $crate::AutoProfilerLabel::relevant_for_js($label, $crate::__category!($($category)+));
    };
}

/// As [`auto_profiler_label_dynamic!`], and the viewer shows it among the frames of scripts, too:
/// `auto_profiler_label_dynamic_relevant_for_js!("rule", rule.name(), JavaScript)`.
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR_RELEVANT_FOR_JS")]
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_NSCSTRING_RELEVANT_FOR_JS")]
#[macro_export]
macro_rules! auto_profiler_label_dynamic_relevant_for_js {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::relevant_for_js_with_dynamic(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
        );
    };
}

/// An interval marker with a text, for the rest of the scope:
/// `auto_profiler_marker_text!("Request", gecko_profiler_category!(Network), MarkerOptions::default(), url)`.
#[doc(alias = "AUTO_PROFILER_MARKER_TEXT")]
#[macro_export]
macro_rules! auto_profiler_marker_text {
    ($name:expr, $category:expr, $options:expr, $text:expr $(,)?) => {
        let _auto_profiler_marker =
            $crate::AutoProfilerTextMarker::new($name, $category, $options, $text);
    };
}

/// A typed marker whose arguments, but for the options, are evaluated only where it is recorded:
/// `lazy_add_marker!(name, category, options, payload)`, without the options, or with a name and a payload alone, in the
/// category “Other”. The options are evaluated wherever a profiler is active and not paused, as they say whose marker it is.
#[macro_export]
macro_rules! lazy_add_marker {
    ($name:expr, $category:expr, $options:expr, $payload:expr $(,)?) => {
        if $crate::is_active_and_unpaused() {
            let options: $crate::MarkerOptions = $options;
            if $crate::__private::would_record(&options) {
                $crate::add_marker($name, $category, options, $payload);
            }
        }
    };
    ($name:expr, $category:expr, $payload:expr $(,)?) => {
        if $crate::current_thread_is_being_profiled_for_markers() {
            $crate::add_marker(
                $name,
                $category,
                ::core::default::Default::default(),
                $payload,
            );
        }
    };
    ($name:expr, $payload:expr $(,)?) => {
        $crate::lazy_add_marker!($name, $crate::gecko_profiler_category!(Other), $payload)
    };
}

/// The same with a text: `lazy_add_text_marker!(name, category, options, text)`.
#[macro_export]
macro_rules! lazy_add_text_marker {
    ($name:expr, $category:expr, $options:expr, $text:expr $(,)?) => {
        if $crate::is_active_and_unpaused() {
            let options: $crate::MarkerOptions = $options;
            if $crate::__private::would_record(&options) {
                $crate::add_text_marker($name, $category, options, $text);
            }
        }
    };
}

/// The same without data: `lazy_add_untyped_marker!(name, category, options)`.
#[macro_export]
macro_rules! lazy_add_untyped_marker {
    ($name:expr, $category:expr, $options:expr $(,)?) => {
        if $crate::is_active_and_unpaused() {
            let options: $crate::MarkerOptions = $options;
            if $crate::__private::would_record(&options) {
                $crate::add_untyped_marker($name, $category, options);
            }
        }
    };
}

/// A text marker whose text is formatted only where it is recorded, and without an allocation: 512 bytes of it at most, cut at a
/// character. `add_text_marker_fmt!(name, category, options, "{} of {}", done, all)`.
#[doc(alias = "PROFILER_MARKER_FMT")]
#[macro_export]
macro_rules! add_text_marker_fmt {
    ($name:expr, $category:expr, $options:expr, $($format:tt)+) => {
        if $crate::is_active_and_unpaused() {
            let options: $crate::MarkerOptions = $options;
            if $crate::__private::would_record(&options) {
                let text = $crate::__private::ShortText::format(::core::format_args!($($format)+));
                $crate::add_text_marker($name, $category, options, text.as_str());
            }
        }
    };
}

/// A typed marker that is recorded only while the feature [`FLOWS`](crate::Features::FLOWS) is active: for those of flows that are
/// many. `profiler_marker_flow_only!(name, category, options, payload)`.
#[doc(alias = "PROFILER_MARKER_FLOW_ONLY")]
#[macro_export]
macro_rules! profiler_marker_flow_only {
    ($name:expr, $category:expr, $options:expr, $payload:expr $(,)?) => {
        if $crate::__private::records_flows() {
            $crate::lazy_add_marker!($name, $category, $options, $payload);
        }
    };
}

/// An interval in two markers, for the rest of the scope:
/// `auto_profiler_marker!("Request", gecko_profiler_category!(Network), MarkerOptions::default())`.
#[doc(alias = "AUTO_PROFILER_MARKER")]
#[macro_export]
macro_rules! auto_profiler_marker {
    ($name:expr, $category:expr, $options:expr $(,)?) => {
        let _auto_profiler_marker = $crate::AutoProfilerMarker::new($name, $category, $options);
    };
}

/// The same with a word, as Mozilla's crate has had it: `auto_profiler_marker_tracing!(name, category, options, "Webrender".into())`.
#[macro_export]
macro_rules! auto_profiler_marker_tracing {
    ($name:expr, $category:expr, $options:expr, $payload:expr $(,)?) => {
        let _auto_profiler_marker =
            $crate::AutoProfilerTracingMarker::new($name, $category, $options, $payload);
    };
}

/// The same of a flow: `auto_profiler_flow_marker!(name, category, options, FlowStackMarker::from_pointer(request))`.
#[macro_export]
macro_rules! auto_profiler_flow_marker {
    ($name:expr, $category:expr, $options:expr, $payload:expr $(,)?) => {
        let _auto_profiler_marker =
            $crate::AutoProfilerFlowMarker::new($name, $category, $options, $payload);
    };
}

/// Categories of the host's own, beside Gecko's: each with its label, a colour of the viewer's, and its subcategories, of which
/// the first is the default.
///
/// ```
/// gekkota::profiler_categories! {
///     /// What a request costs.
///     pub Requests("Requests", blue) {
///         Other: "Other",
///         Parsing: "Parsing",
///     }
///     pub Database("Database", orange) { Other: "Other" }
/// }
///
/// gekkota::add_untyped_marker("received", Requests::Other, Default::default());
/// gekkota::auto_profiler_label!("parse", Requests::Parsing);
/// gekkota::auto_profiler_label!("answer", Requests::DEFAULT);
/// ```
///
/// The first subcategory is the default, by the name `DEFAULT`. Gecko's categories stay beside those of the host.
///
/// Colours are transparent, blue, brown, darkgrey, green, grey, lightblue, lightgreen, lightred, magenta, orange, purple, red and
/// yellow; another, or a category without a subcategory, does not compile. The grey that the viewer takes for what has no
/// category is always there, as Gecko's “Other”. A process has room for 231; what is beyond shows as “Other”. A category stands in
/// a profile once it was used.
#[macro_export]
macro_rules! profiler_categories {
    ($(
        $(#[$meta:meta])*
        $vis:vis $name:ident($label:literal, $color:ident) { $($sub:ident: $sub_label:literal),+ $(,)? }
    )+) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug)]
            $vis enum $name {}

            #[allow(
                non_upper_case_globals,
                dead_code,
                reason = "a subcategory stands where a variant of Gecko's does"
            )]
            impl $name {
                $(
                    #[doc = ::core::concat!("“", $label, "”: “", $sub_label, "”.")]
                    $vis const $sub: $crate::ProfilingCategoryPair = $crate::ProfilingCategoryPair::Host(
                        $crate::HostCategory::new(Self::definition, Self::number_of(::core::stringify!($sub))),
                    );
                )+

                #[doc = ::core::concat!("“", $label, "”, with the first of its subcategories.")]
                $vis const DEFAULT: $crate::ProfilingCategoryPair = $crate::ProfilingCategoryPair::Host(
                    $crate::HostCategory::new(Self::definition, 0),
                );

                fn definition() -> &'static $crate::__private::CategoryDefinition {
                    static DEFINITION: $crate::__private::CategoryDefinition =
                        $crate::__private::CategoryDefinition::new(
                            $label,
                            ::core::stringify!($color),
                            &[$($sub_label),+],
                        );
                    &DEFINITION
                }

                const fn number_of(subcategory: &str) -> u8 {
                    $crate::__private::place_among(&[$(::core::stringify!($sub)),+], subcategory)
                }
            }
        )+
    };
}
