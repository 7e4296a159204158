//! What a thread shows or serves: documents of a browser, windows, tenants.

/// A page: what the Firefox Profiler can offer as a tab, to look at what belongs to it alone.
///
/// A browser's page is a document; a host that is none may have one for a window, a tenant or a connection. Idea: Gecko's
/// `PageInformation`.
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
    /// A page by its id, which is the host's to choose and not 0, which stands for none, and what the viewer shows for it.
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

    /// The tab that it is in; several pages, one after another, may be in one. 0 unless said.
    #[must_use]
    pub fn tab_id(mut self, tab_id: u64) -> Self {
        self.tab_id = tab_id;
        self
    }

    /// The id of the page that it is a part of; 0, which is none, unless said.
    #[doc(alias = "embedderInnerWindowID")]
    #[must_use]
    pub fn embedder(mut self, inner_window_id: u64) -> Self {
        self.embedder_inner_window_id = inner_window_id;
        self
    }

    /// That it is one of a private window, so that who shares the profile may leave it out.
    #[doc(alias = "isPrivateBrowsing")]
    #[must_use]
    pub fn private_browsing(mut self, is_private: bool) -> Self {
        self.is_private_browsing = is_private;
        self
    }

    /// Its id.
    pub fn inner_window_id(&self) -> u64 {
        self.inner_window_id
    }
}
