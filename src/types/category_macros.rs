//! The exported macros that choose and define categories. They hold no logic, except that they know
//! the names of Gecko's categories, so that a misspelled one is an error which lists them.

/// Makes a [`ProfilingCategoryPair`](crate::types::ProfilingCategoryPair) from the names of Gecko's
/// list.
///
/// ```
/// use gekkota::gecko_profiler_category;
///
/// let network = gecko_profiler_category!(Network);
/// let parsing = gecko_profiler_category!(JavaScript, Parsing);
/// # assert_eq!(parsing.label(), "Parsing");
/// # assert_eq!(network.label(), "Other");
/// ```
///
/// [`category`](crate::category) lists the names, and so does the error for an unknown one.
/// [`profiler_categories!`](crate::profiler_categories) defines more.
#[macro_export]
macro_rules! gecko_profiler_category {
    ($category:ident $(,)?) => {
        $crate::__gecko_category!($category; $category(::core::option::Option::None))
    };
    ($category:ident, $subcategory:ident $(,)?) => {
        $crate::__gecko_category!($category; $category(::core::option::Option::Some(
            $crate::category::$category::$subcategory,
        )))
    };
}

/// Makes the pair that follows the semicolon, if the name before it is in Gecko's list. Otherwise
/// an error lists the names, and the compiler adds the most similar one.
#[doc(hidden)]
#[macro_export]
macro_rules! __gecko_category {
    (Idle; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Other; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Test; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Layout; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (JavaScript; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (GCCC; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Network; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Graphics; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (DOM; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Android; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (AndroidX; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Java; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Mozilla; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Kotlin; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Blocked; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Mailnews; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (IPC; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Media; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Accessibility; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Profiler; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Timer; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (RemoteProtocol; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Sandbox; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (Telemetry; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    (ML; $($pair:tt)+) => { $crate::ProfilingCategoryPair::$($pair)+ };
    ($unknown:ident; $($pair:tt)+) => {{
        ::core::compile_error!(::core::concat!(
            "cannot find the category: got `",
            ::core::stringify!($unknown),
            "`, expected one of Gecko's (Idle, Other, Test, Layout, JavaScript, GCCC, \
             Network, Graphics, DOM, Android, AndroidX, Java, Mozilla, Kotlin, Blocked, \
             Mailnews, IPC, Media, Accessibility, Profiler, Timer, RemoteProtocol, Sandbox, \
             Telemetry, ML), or a category of the application, such as `Requests::Parsing`; a \
             variable or constant needs parentheses, as in `(category)`"
        ));
        $crate::ProfilingCategoryPair::$($pair)+
    }};
}

/// Makes a category from the arguments of a label macro: names of Gecko's list, or an expression.
#[doc(hidden)]
#[macro_export]
macro_rules! __category {
    ($category:ident $(,)?) => {
        $crate::gecko_profiler_category!($category)
    };
    ($category:ident, $subcategory:ident $(,)?) => {
        $crate::gecko_profiler_category!($category, $subcategory)
    };
    // The field of a tuple: the compiler would warn of parentheses around an argument.
    ($category:expr $(,)?) => {
        ($category,).0
    };
}

/// Defines categories of the application, in addition to Gecko's.
///
/// Each category has a label, a color of the viewer, and at least one subcategory.
///
/// ```
/// gekkota::profiler_categories! {
///     /// The cost of a request.
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
/// Each subcategory becomes a constant of type
/// [`ProfilingCategoryPair`](crate::types::ProfilingCategoryPair). `DEFAULT` is the first one.
///
/// Colors: transparent, blue, brown, darkgrey, green, grey, lightblue, lightgreen, lightred,
/// magenta, orange, purple, red, yellow. Another color, or a category without a subcategory, does
/// not compile. Gecko's grey category “Other” always exists, because the viewer needs it for frames
/// without a category. A process can define 231 categories; further ones are recorded as “Other”. A
/// profile lists a category once it has been used.
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
                reason = "subcategories are named like the variants of Gecko's enums"
            )]
            impl $name {
                $(
                    #[doc = ::core::concat!("“", $label, "”: “", $sub_label, "”.")]
                    $vis const $sub: $crate::ProfilingCategoryPair = $crate::ProfilingCategoryPair::Host(
                        $crate::category::HostCategory::new(Self::definition, Self::number_of(::core::stringify!($sub))),
                    );
                )+

                #[doc = ::core::concat!("“", $label, "”, with the first of its subcategories.")]
                $vis const DEFAULT: $crate::ProfilingCategoryPair = $crate::ProfilingCategoryPair::Host(
                    $crate::category::HostCategory::new(Self::definition, 0),
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

#[cfg(test)]
mod tests {
    use crate::types::category::CATEGORY_NAMES;

    #[test]
    fn gecko_category_knows_every_name_and_lists_it_in_the_error() {
        let source = include_str!("category_macros.rs");
        let (_, after) = source
            .split_once("macro_rules! __gecko_category {")
            .expect("the macro");
        let (arms, error) = after.split_once("($unknown:ident;").expect("the error");
        let known: Vec<_> = arms
            .lines()
            .filter_map(|arm| arm.trim().strip_prefix('('))
            .filter_map(|arm| arm.split(';').next())
            .collect();
        assert_eq!(known, CATEGORY_NAMES);
        let (_, list) = error.split_once("Gecko's (").expect("the list");
        let (list, _) = list.split_once(')').expect("its end");
        let listed: Vec<_> = list
            .split(',')
            .map(|name| name.trim_matches([' ', '\\', '\n']))
            .collect();
        assert_eq!(listed, CATEGORY_NAMES);
    }
}
