//! Pages: documents of a browser, windows, tenants or connections.

/// A page, by which the Firefox Profiler can filter a profile.
///
/// A page of a browser is a document. Other applications may register a page for each window,
/// tenant or connection. Idea: Gecko's `PageInformation`.
#[doc(alias = "PageInformation")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub(crate) tab_id: u64,
    pub(crate) inner_window_id: u64,
    pub(crate) url: String,
    pub(crate) embedder_inner_window_id: u64,
    pub(crate) is_private_browsing: bool,
}

impl Page {
    /// Creates a page from its id and the text that the viewer shows for it.
    ///
    /// The application chooses the id. 0 is reserved for "no page".
    pub fn new(inner_window_id: u64, url: impl Into<String>) -> Self {
        let (tab_id, embedder_inner_window_id, is_private_browsing) = (0, 0, false);
        Self {
            tab_id,
            inner_window_id,
            url: url.into(),
            embedder_inner_window_id,
            is_private_browsing,
        }
    }

    /// Sets the tab that contains the page; a tab may contain several pages, one after another.
    /// Default: 0.
    #[must_use]
    pub fn tab_id(mut self, tab_id: u64) -> Self {
        self.tab_id = tab_id;
        self
    }

    /// Sets the id of the page that embeds this one. Default: 0, which means none.
    #[doc(alias = "embedderInnerWindowID")]
    #[must_use]
    pub fn embedder(mut self, inner_window_id: u64) -> Self {
        self.embedder_inner_window_id = inner_window_id;
        self
    }

    /// Sets whether the page belongs to a private window. The viewer can leave such pages out when
    /// the profile is shared. Default: false.
    #[doc(alias = "isPrivateBrowsing")]
    #[must_use]
    pub fn private_browsing(mut self, is_private: bool) -> Self {
        self.is_private_browsing = is_private;
        self
    }

    /// Returns the page's id.
    pub fn inner_window_id(&self) -> u64 {
        self.inner_window_id
    }
}
