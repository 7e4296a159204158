//! Writes the profile's pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::json::JsonWriter;
use crate::types::Page;

/// Writes the elements of `pages`. The viewer follows each page to its embedder, and on to the
/// outermost page. A page whose embedders lead into a cycle has no outermost page, so it is written
/// without an embedder.
pub(crate) fn write_pages(json: &mut JsonWriter<'_>, pages: &[Arc<Page>]) {
    let embedders = pages
        .iter()
        .map(|page| (page.inner_window_id, page.embedder_inner_window_id))
        .collect();
    for page in pages {
        let embedder = if has_cyclic_embedder(page, &embedders) {
            0
        } else {
            page.embedder_inner_window_id
        };
        json.object(|json| {
            json.key("tabID").unsigned(page.tab_id);
            json.key("innerWindowID").unsigned(page.inner_window_id);
            json.key("url").string(&page.url);
            json.key("embedderInnerWindowID").unsigned(embedder);
            json.key("isPrivateBrowsing").bool(page.is_private_browsing);
        });
    }
}

/// Returns whether following the embedders of a page never ends.
fn has_cyclic_embedder(page: &Page, embedders: &BTreeMap<u64, u64>) -> bool {
    let mut outer = page.embedder_inner_window_id;
    for _ in embedders {
        match embedders.get(&outer) {
            Some(&next) if outer != 0 => outer = next,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_in_embedder_cycle_has_no_embedder() {
        // A self-embedded page, a cycle of two, a page inside that cycle, a chain, and a page with
        // an unknown embedder.
        let pages = [
            (1, 1),
            (2, 3),
            (3, 2),
            (4, 2),
            (5, 6),
            (6, 7),
            (7, 0),
            (8, 99),
        ];
        let pages =
            pages.map(|(id, embedder)| Arc::new(Page::new(id, "a page").embedder(embedder)));
        let mut text = Vec::new();
        let mut json = JsonWriter::new(&mut text);
        json.array(|json| write_pages(json, &pages));
        json.finish().expect("a vector never fails");
        let written: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let embedders = written
            .as_array()
            .expect("pages")
            .iter()
            .map(|page| page["embedderInnerWindowID"].as_u64());
        assert!(
            embedders.eq([0, 0, 0, 0, 6, 7, 0, 99].map(Some)),
            "{written}"
        );
    }
}
