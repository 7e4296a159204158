//! The exported macros for labels and markers. They expand to public items and hold no logic.
//! `markers/profiler_marker.rs` defines `marker_type!`, and `types/category_macros.rs`
//! those for categories, and `api/early_start.rs` defines `early_start!`.
//!
//! `macro_export` puts every macro at the crate's root. A macro that belongs in a module is
//! exported under a hidden name that begins with `__`, and the module re-exports it under its own
//! name.

/// Labels the rest of the scope.
///
/// ```
/// # gekkota::profiler_categories! { Requests("Requests", blue) { Parsing: "Parsing" } }
/// fn decode() {
///     gekkota::auto_profiler_label!("decode"); // until the function returns
///     {
///         gekkota::auto_profiler_label!("parse", Requests::Parsing); // the application's category
///     }
///     gekkota::auto_profiler_label!("play", Media, Playback); // Gecko's
/// }
/// # decode();
/// ```
///
/// | Form | Category |
/// |---|---|
/// | `auto_profiler_label!("text")` | Gecko's “Other” |
/// | `auto_profiler_label!(LABEL)`, a [`Label`](crate::label::Label) | its own |
/// | `auto_profiler_label!("text", Category)`, `auto_profiler_label!("text", Category, Subcategory)` | as for [`gecko_profiler_category!`](crate::gecko_profiler_category) |
/// | `auto_profiler_label!("text", expression)` | the expression's value; a single name needs parentheses: `(category)` |
///
/// The text is a literal or another `&'static str`. For a text that is made at run time, use
/// [`auto_profiler_label_dynamic!`](crate::auto_profiler_label_dynamic).
/// [`AutoProfilerLabel`](crate::api::AutoProfilerLabel) tells how labels behave and what they cost.
/// To label a whole function there is also
/// [`gecko_profiler_fn_label`](macro@crate::gecko_profiler_fn_label), and to label a future
/// [`labeled_future`](crate::labeled_future).
#[doc(alias = "AUTO_PROFILER_LABEL")]
#[macro_export]
macro_rules! auto_profiler_label {
    ($label:expr $(,)?) => {
        let _auto_profiler_label = $crate::__label_of_static_text_else_auto_profiler_label_dynamic!($label);
    };
    ($label:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::__label_of_static_text_else_auto_profiler_label_dynamic!(
            $label,
            $crate::__category!($($category)+)
        );
    };
}

/// Pushes a label. The compiler names this macro in its error for a text that does not live as long
/// as the program, so its name says what to use for such a text.
#[doc(hidden)]
#[macro_export]
macro_rules! __label_of_static_text_else_auto_profiler_label_dynamic {
    ($label:expr) => {
        $crate::AutoProfilerLabel::of($label)
    };
    ($label:expr, $category:expr) => {
        $crate::AutoProfilerLabel::new($label, $category)
    };
}

/// Puts the rest of the scope into a [context](crate::context), which has what the context around
/// it says, and more.
///
/// ```
/// fn answer(trace_id: u128, span_id: u64, path: &str) {
///     gekkota::profiler_context!(trace_id = trace_id, span_id = span_id, "route" = path);
///     // … until the function returns
/// }
/// # answer(1, 2, "/");
/// ```
///
/// `trace_id` is a `u128`, `span_id` a `u64`; a label has a key and a value of the type `&str`.
/// [`ProfilerContext`](crate::context::ProfilerContext) tells how contexts behave and what they
/// cost. For a future, use [`in_context`](crate::context::in_context).
#[macro_export]
macro_rules! profiler_context {
    ($($key:tt = $value:expr),+ $(,)?) => {
        let _profiler_context = $crate::context::ProfilerContext::current();
        $(let _profiler_context = $crate::__with_context_field!(_profiler_context, $key = $value);)+
        let _profiler_context = _profiler_context.enter();
    };
}

/// Adds one field to a context.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_context_field {
    ($context:ident, trace_id = $value:expr) => {
        $context.with_trace_id($value)
    };
    ($context:ident, span_id = $value:expr) => {
        $context.with_span_id($value)
    };
    ($context:ident, "trace_id" = $value:expr) => {
        ::core::compile_error!("write trace_id = …, without quotes: it is not a label")
    };
    ($context:ident, "span_id" = $value:expr) => {
        ::core::compile_error!("write span_id = …, without quotes: it is not a label")
    };
    ($context:ident, $key:tt = $value:expr) => {
        $context.with_label($key, $value)
    };
}

/// Labels the rest of the scope, but only if the profiler is active when the scope begins.
///
/// For code where a nanosecond counts: without a session it costs one relaxed load. A session that
/// starts inside the scope does not see the label. Arguments as for
/// [`auto_profiler_label!`](crate::auto_profiler_label).
#[doc(alias = "AUTO_PROFILER_LABEL_HOT")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_hot {
    ($label:expr, $($category:tt)+) => {
        let _auto_profiler_label = if $crate::profiler_is_active() {
            ::core::option::Option::Some($crate::AutoProfilerLabel::new(
                $label,
                $crate::__category!($($category)+),
            ))
        } else {
            ::core::option::Option::None
        };
    };
}

/// Labels the rest of the scope with the subcategory's own label:
/// `auto_profiler_label_category_pair!(Layout, Reflow)`.
#[doc(alias = "AUTO_PROFILER_LABEL_CATEGORY_PAIR")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_category_pair {
    ($($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::of_category($crate::__category!($($category)+));
    };
}

/// Labels the rest of the scope with the subcategory's own label, and shows the label among script
/// frames.
///
/// The viewer keeps this label when its call tree is set to “JavaScript”.
#[doc(alias = "AUTO_PROFILER_LABEL_CATEGORY_PAIR_RELEVANT_FOR_JS")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_category_pair_relevant_for_js {
    ($($category:tt)+) => {
        let category = $crate::__category!($($category)+);
        let _auto_profiler_label = $crate::AutoProfilerLabel::relevant_for_js(category.label(), category);
    };
}

/// Labels the rest of the scope with the subcategory's own label, but only if the profiler is
/// active when the scope begins.
///
/// Arguments: `gecko_profiler_label!(JavaScript, Parsing)`, or an expression.
#[doc(hidden)]
#[macro_export]
macro_rules! __gecko_profiler_label {
    ($($category:tt)+) => {
        let _gecko_profiler_label = if $crate::profiler_is_active() {
            ::core::option::Option::Some($crate::AutoProfilerLabel::of_category(
                $crate::__category!($($category)+),
            ))
        } else {
            ::core::option::Option::None
        };
    };
}

/// Labels the rest of the scope with a label and a copied text:
/// `auto_profiler_label_dynamic!("load", path, Network)`.
///
/// ```
/// fn load(path: &str) {
///     gekkota::auto_profiler_label_dynamic!("load", path); // Gecko's category “Other”
///     for part in path.split('/') {
///         gekkota::auto_profiler_label_dynamic!("open", part, Network);
///     }
/// }
/// # load("a/b");
/// ```
///
/// The text is a `&str`, of which at most 512 bytes are copied. The frame is shown as `load
/// <text>`. The category is written as for [`auto_profiler_label!`](crate::auto_profiler_label).
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR")]
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_NSCSTRING")]
#[macro_export]
macro_rules! auto_profiler_label_dynamic {
    ($label:expr, $dynamic:expr $(,)?) => {
        $crate::auto_profiler_label_dynamic!($label, $dynamic, Other)
    };
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label =
            $crate::AutoProfilerLabel::with_dynamic($label, $dynamic, $crate::__category!($($category)+));
    };
}

/// Labels the rest of the scope with a label and a copied UTF-16 text, a `&[u16]`.
///
/// Invalid parts become U+FFFD. Other arguments as for
/// [`auto_profiler_label_dynamic!`](crate::auto_profiler_label_dynamic).
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_LOSSY_NSSTRING")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_dynamic_utf16 {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label =
            $crate::AutoProfilerLabel::with_dynamic_utf16($label, $dynamic, $crate::__category!($($category)+));
    };
}

/// Labels the rest of the scope with a label and a copied text that holds no private data.
///
/// Stacks that leave the machine may keep such a text. Arguments as for
/// [`auto_profiler_label_dynamic!`](crate::auto_profiler_label_dynamic).
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR_NONSENSITIVE")]
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_NSCSTRING_NONSENSITIVE")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_dynamic_nonsensitive {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_flags(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
            $crate::label::LabelFlags::NONSENSITIVE,
        );
    };
}

/// Labels the rest of the scope with a method of a script object, shown as `Class.method`:
/// `auto_profiler_label_method!("Element", "append", DOM)`.
#[doc(alias = "STRING_TEMPLATE_METHOD")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_method {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_flags(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
            $crate::label::LabelFlags::METHOD,
        );
    };
}

/// Labels the rest of the scope with a property of a script object that is read, shown as `get
/// Class.property`: `auto_profiler_label_getter!("Element", "id", DOM)`.
#[doc(alias = "STRING_TEMPLATE_GETTER")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_getter {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_flags(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
            $crate::label::LabelFlags::GETTER,
        );
    };
}

/// Labels the rest of the scope with a property of a script object that is set, shown as `set
/// Class.property`: `auto_profiler_label_setter!("Element", "id", DOM)`.
#[doc(alias = "STRING_TEMPLATE_SETTER")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_setter {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::with_flags(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
            $crate::label::LabelFlags::SETTER,
        );
    };
}

/// Labels the rest of the scope, and shows the label among script frames:
/// `auto_profiler_label_relevant_for_js!("fetch", Network)`.
///
/// The viewer keeps this label when its call tree is set to “JavaScript”. Arguments as for
/// [`auto_profiler_label!`](crate::auto_profiler_label).
#[doc(alias = "AUTO_PROFILER_LABEL_RELEVANT_FOR_JS")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_relevant_for_js {
    ($label:expr, $($category:tt)+) => {
        let _auto_profiler_label =
            $crate::AutoProfilerLabel::relevant_for_js($label, $crate::__category!($($category)+));
    };
}

/// Labels the rest of the scope with a label and a copied text, and shows them among script frames:
/// `auto_profiler_label_dynamic_relevant_for_js!("rule", rule.name(), JavaScript)`.
///
/// The viewer keeps this label when its call tree is set to “JavaScript”. Arguments as for
/// [`auto_profiler_label_dynamic!`](crate::auto_profiler_label_dynamic).
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR_RELEVANT_FOR_JS")]
#[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_NSCSTRING_RELEVANT_FOR_JS")]
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_label_dynamic_relevant_for_js {
    ($label:expr, $dynamic:expr, $($category:tt)+) => {
        let _auto_profiler_label = $crate::AutoProfilerLabel::relevant_for_js_with_dynamic(
            $label,
            $dynamic,
            $crate::__category!($($category)+),
        );
    };
}

/// Adds an interval marker with a text for the rest of the scope.
///
/// ```
/// fn answer(url: &str) {
///     gekkota::auto_profiler_marker_text!("Request", url);
///     // … the work …
/// }
/// # answer("/");
/// ```
///
/// | Form | Options and category |
/// |---|---|
/// | `auto_profiler_marker_text!(name, category, options, text)` | the given ones |
/// | `auto_profiler_marker_text!(name, category, text)` | default options |
/// | `auto_profiler_marker_text!(name, text)` | default options, category “Other” |
///
/// The scope's end adds the marker. See
/// [`AutoProfilerTextMarker`](crate::api::AutoProfilerTextMarker).
#[doc(alias = "AUTO_PROFILER_MARKER_TEXT")]
#[macro_export]
macro_rules! auto_profiler_marker_text {
    ($name:expr, $category:expr, $options:expr, $text:expr $(,)?) => {
        let _auto_profiler_marker =
            $crate::AutoProfilerTextMarker::new($name, $category, $options, $text);
    };
    ($name:expr, $category:expr, $text:expr $(,)?) => {
        $crate::auto_profiler_marker_text!(
            $name,
            $category,
            ::core::default::Default::default(),
            $text
        )
    };
    ($name:expr, $text:expr $(,)?) => {
        $crate::auto_profiler_marker_text!($name, $crate::gecko_profiler_category!(Other), $text)
    };
}

/// Adds a marker, in the simplest form: with a name, and with a text or fields.
///
/// ```
/// # let (path, done, all) = (std::path::Path::new("a.png"), 3, 7);
/// gekkota::marker!("woke up");
/// gekkota::marker!("opened", path.display());
/// gekkota::marker!("progress", "{done} of {all}");
/// gekkota::marker!("progress", "{} of {}", done, all);
/// gekkota::marker!("answered", status = 200, route = "/cart");
/// ```
///
/// | Form | Data |
/// |---|---|
/// | `marker!(name)` | none |
/// | `marker!(name, text)` | a text: any value that implements [`Display`](std::fmt::Display) |
/// | `marker!(name, "format", …)` | a text, as for [`format!`] |
/// | `marker!(name, field = value, …)` | one to eight typed fields |
///
/// A field is a number, a `bool`, a string, a [`Duration`](std::time::Duration), a
/// [`FlowId`](crate::FlowId), a [`ProcessId`](crate::types::ProcessId), a
/// [`ThreadId`](crate::types::ThreadId), or an `Option` of one. A marker with fields has a type of
/// the same name, so its name is a constant. [`marker_type!`](crate::marker_type) also chooses
/// labels, formats and graphs.
///
/// The name is a `&str`. The marker has the current time and Gecko's category “Other”, and goes to
/// the calling thread. The text is cut to at most 512 bytes, at a character boundary.
/// [`add_text_marker`](crate::add_text_marker) has no such limit, and takes a category, a time and
/// a stack. [`auto_profiler_marker_text!`](crate::auto_profiler_marker_text) covers a scope.
///
/// Name, text and fields are evaluated only if the marker is recorded. Formatting allocates
/// nothing; a field that is a `&str` is copied into a `String`. Cost: that of
/// [`add_text_marker`](crate::add_text_marker) and the formatting, or of
/// [`add_marker`](crate::add_marker); one relaxed load while the profiler is inactive.
#[doc(alias = "PROFILER_MARKER_UNTYPED")]
#[doc(alias = "PROFILER_MARKER_TEXT")]
#[doc(alias = "PROFILER_MARKER_FMT")]
#[macro_export]
macro_rules! marker {
    ($name:expr $(,)?) => {
        if $crate::__private::records_markers_of_current_thread() {
            $crate::add_untyped_marker(
                $name,
                $crate::gecko_profiler_category!(Other),
                ::core::default::Default::default(),
            );
        }
    };
    ($name:expr, $($field:ident = $value:expr),+ $(,)?) => {
        if $crate::__private::records_markers_of_current_thread() {
            struct __MarkerFields;

            impl $crate::__private::FieldNames for __MarkerFields {
                const TYPE: &'static str = $name;
                const FIELDS: &'static [&'static str] = &[$(::core::stringify!($field)),+];
            }

            let values = ($($crate::__private::FieldValue::keep($value),)+);
            $crate::add_marker(
                $name,
                $crate::gecko_profiler_category!(Other),
                ::core::default::Default::default(),
                $crate::__private::Fields::<__MarkerFields, _>::new(values),
            );
        }
    };
    ($name:expr, $format:literal $(, $($arguments:tt)*)?) => {
        $crate::__marker_with_text!($name, ::core::format_args!($format $(, $($arguments)*)?))
    };
    ($name:expr, $text:expr $(,)?) => {
        $crate::__marker_with_text!($name, ::core::format_args!("{}", $text))
    };
}

/// Adds a marker with a formatted text, if it is recorded.
#[doc(hidden)]
#[macro_export]
macro_rules! __marker_with_text {
    ($name:expr, $text:expr) => {
        if $crate::__private::records_markers_of_current_thread() {
            $crate::add_text_marker(
                $name,
                $crate::gecko_profiler_category!(Other),
                ::core::default::Default::default(),
                $crate::__private::ShortText::format($text).as_str(),
            );
        }
    };
}

/// Adds a typed marker, and evaluates its arguments only if the marker is recorded.
///
/// | Form | Options and category |
/// |---|---|
/// | `lazy_add_marker!(name, category, options, payload)` | the given ones |
/// | `lazy_add_marker!(name, category, payload)` | default options |
/// | `lazy_add_marker!(name, payload)` | default options, category “Other” |
///
/// The options are the exception: they are evaluated whenever the profiler is active and not
/// paused, because they name the marker's thread. Cost while the profiler is inactive: one relaxed
/// load.
#[macro_export]
macro_rules! lazy_add_marker {
    ($name:expr, $category:expr, $options:expr, $payload:expr $(,)?) => {
        if $crate::profiler_is_active_and_unpaused() {
            let options: $crate::MarkerOptions = $options;
            if $crate::__private::would_record(&options) {
                $crate::add_marker($name, $category, options, $payload);
            }
        }
    };
    ($name:expr, $category:expr, $payload:expr $(,)?) => {
        if $crate::__private::records_markers_of_current_thread() {
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

/// Adds a marker with a text, and evaluates name and text only if the marker is recorded:
/// `lazy_add_text_marker!(name, category, options, text)`.
///
/// The options are evaluated whenever the profiler is active and not paused.
#[doc(hidden)]
#[macro_export]
macro_rules! __lazy_add_text_marker {
    ($name:expr, $category:expr, $options:expr, $text:expr $(,)?) => {
        if $crate::profiler_is_active_and_unpaused() {
            let options: $crate::MarkerOptions = $options;
            if $crate::__private::would_record(&options) {
                $crate::add_text_marker($name, $category, options, $text);
            }
        }
    };
}

/// Adds a marker without data, and evaluates its name only if the marker is recorded:
/// `lazy_add_untyped_marker!(name, category, options)`.
///
/// The options are evaluated whenever the profiler is active and not paused.
#[doc(hidden)]
#[macro_export]
macro_rules! __lazy_add_untyped_marker {
    ($name:expr, $category:expr, $options:expr $(,)?) => {
        if $crate::profiler_is_active_and_unpaused() {
            let options: $crate::MarkerOptions = $options;
            if $crate::__private::would_record(&options) {
                $crate::add_untyped_marker($name, $category, options);
            }
        }
    };
}

/// Adds a marker with a formatted text: `add_text_marker_fmt!(name, category, options, "{} of {}",
/// done, all)`.
///
/// The text is formatted only if the marker is recorded, and without an allocation. It is cut to at
/// most 512 bytes, at a character boundary.
#[doc(alias = "PROFILER_MARKER_FMT")]
#[doc(hidden)]
#[macro_export]
macro_rules! __add_text_marker_fmt {
    ($name:expr, $category:expr, $options:expr, $($format:tt)+) => {
        if $crate::profiler_is_active_and_unpaused() {
            let options: $crate::MarkerOptions = $options;
            if $crate::__private::would_record(&options) {
                let text = $crate::__private::ShortText::format(::core::format_args!($($format)+));
                $crate::add_text_marker($name, $category, options, text.as_str());
            }
        }
    };
}

/// Adds a typed marker only while the feature [`FLOWS`](crate::types::Features::FLOWS) is active:
/// `profiler_marker_flow_only!(name, category, options, payload)`.
///
/// For flow markers that are too frequent for every session.
#[doc(alias = "PROFILER_MARKER_FLOW_ONLY")]
#[doc(hidden)]
#[macro_export]
macro_rules! __profiler_marker_flow_only {
    ($name:expr, $category:expr, $options:expr, $payload:expr $(,)?) => {
        if $crate::__private::records_flows() {
            $crate::lazy_add_marker!($name, $category, $options, $payload);
        }
    };
}

/// Adds two markers for the rest of the scope, one for its beginning and one for its end. The
/// viewer shows them as one interval.
///
/// | Form | Options and category |
/// |---|---|
/// | `auto_profiler_marker!(name, category, options)` | the given ones |
/// | `auto_profiler_marker!(name, category)` | default options |
/// | `auto_profiler_marker!(name)` | default options, category “Other” |
///
/// See [`AutoProfilerMarker`](crate::api::AutoProfilerMarker).
#[doc(alias = "AUTO_PROFILER_MARKER")]
#[macro_export]
macro_rules! auto_profiler_marker {
    ($name:expr, $category:expr, $options:expr $(,)?) => {
        let _auto_profiler_marker = $crate::AutoProfilerMarker::new($name, $category, $options);
    };
    ($name:expr, $category:expr $(,)?) => {
        $crate::auto_profiler_marker!($name, $category, ::core::default::Default::default())
    };
    ($name:expr $(,)?) => {
        $crate::auto_profiler_marker!($name, $crate::gecko_profiler_category!(Other))
    };
}

/// Adds two markers with a word for the rest of the scope, one for its beginning and one for its
/// end: `auto_profiler_marker_tracing!(name, category, options, "Webrender".into())`.
///
/// An older form of Mozilla's crate. See
/// [`AutoProfilerTracingMarker`](crate::gecko_profiler::AutoProfilerTracingMarker).
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_marker_tracing {
    ($name:expr, $category:expr, $options:expr, $payload:expr $(,)?) => {
        let _auto_profiler_marker = $crate::gecko_profiler::AutoProfilerTracingMarker::new(
            $name, $category, $options, $payload,
        );
    };
}

/// Adds two markers of a flow for the rest of the scope, one for its beginning and one for its end:
/// `auto_profiler_flow_marker!(name, category, options, FlowStackMarker::from_pointer(request))`.
///
/// See [`AutoProfilerFlowMarker`](crate::marker::AutoProfilerFlowMarker).
#[doc(hidden)]
#[macro_export]
macro_rules! __auto_profiler_flow_marker {
    ($name:expr, $category:expr, $options:expr, $payload:expr $(,)?) => {
        let _auto_profiler_marker =
            $crate::marker::AutoProfilerFlowMarker::new($name, $category, $options, $payload);
    };
}
