//! What an HCA costs and how it behaves, as data: every figure with where it comes from.

mod check;
mod figure;
mod format;
mod shipped;

pub use figure::{Evidence, Figure, FigureView};
pub use format::PresetError;

use mr_core::{Fence, KeyScope, Remap};

/// How the TPT caches tell entries apart. No public source settles it; the first is the worse
/// case for whoever invalidates late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTag {
    /// By the whole key: after a remap the old key keeps its own entries until they are evicted.
    FullKey,
    /// By the index: the old key lives until the first packet of the new key replaces its entry.
    Index,
}

/// Declares [`Preset`] and the layer that one file contributes to it from one list of fields.
macro_rules! preset {
    ($($(#[doc = $doc:literal])+ $field:ident: $type:ty,)+) => {
        /// One HCA model: knobs and figures. See the shipped ones with [`Preset::named`].
        ///
        /// Times are nanoseconds. "Caller" is the CPU that calls the backend, "HCA" is the engine
        /// that also moves the data. Only `connectx-3` is calibrated (three published graphs,
        /// in-sample); the cache geometry of the others is assumed, so sweep what matters.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Preset {
            /// What it is called.
            pub name: String,
            /// One sentence on what it stands for.
            pub summary: String,
            $($(#[doc = $doc])+ pub $field: Figure<$type>,)+
        }

        impl Preset {
            /// Names of all figures, in the order of [`figures`](Self::figures).
            pub const FIELDS: &[&str] = &[$(stringify!($field)),+];

            /// Every figure with its value as text, evidence, source and meaning.
            pub fn figures(&self) -> Vec<FigureView<'_>> {
                vec![$(figure::view(&self.$field, stringify!($field), concat!($($doc),+).trim()),)+]
            }
        }

        /// What one preset file says.
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Layer {
            name: Option<String>,
            summary: Option<String>,
            extends: Option<toml::Spanned<String>>,
            $($field: Option<toml::Spanned<Figure<$type>>>,)+
        }

        impl Layer {
            /// The preset of this layer over `base`, and where in the file each field was set; or
            /// the name of a field that nobody sets.
            fn over(self, base: Option<Preset>) -> Result<(Preset, format::Places), &'static str> {
                let mut places = format::Places::new();
                $(
                    let $field = match (self.$field, &base) {
                        (Some(figure), _) => {
                            places.push((stringify!($field), figure.span()));
                            figure.into_inner()
                        }
                        (None, Some(base)) => base.$field.clone(),
                        (None, None) => return Err(stringify!($field)),
                    };
                )+
                let (base_name, base_summary) =
                    base.map_or_else(Default::default, |base| (base.name, base.summary));
                let preset = Preset {
                    name: self.name.unwrap_or(base_name),
                    summary: self.summary.unwrap_or(base_summary),
                    $($field,)+
                };
                Ok((preset, places))
            }
        }
    };
}

preset! {
    /// What one invalidation reaches: `global` (SYNC_TPT) or `per-key` (a chain of LOCAL_INV).
    fence: Fence,
    /// What mapping a region again does: `impossible`, `leaves-previous` or `kills-previous`.
    remap: Remap,
    /// How cache entries are told apart: `full-key` or `index`.
    cache_tag: CacheTag,
    /// Who can use a key: `protection-domain` or `connection`.
    key_scope: KeyScope,
    /// Whether one store can make the table entry refuse its key.
    soft_invalidate: bool,
    /// Whether a peer can kill a key (SEND_WITH_INV).
    remote_invalidate: bool,
    /// Low bits of the key that the caller chooses: 8, or 0 if the HCA does.
    tag_bits: u64,
    /// Regions that can exist at once.
    max_regions: u64,
    /// Pages that one region can map.
    max_pages: u64,
    /// Bytes per page.
    page_bytes: u64,
    /// Regions that one invalidation takes.
    max_batch: u64,
    /// Payload bytes per second that the link carries.
    link_bytes_per_s: u64,
    /// Payload bytes per packet.
    mtu_bytes: u64,
    /// HCA time per packet when both look-ups hit.
    packet_ns: u64,
    /// Time to fetch one table entry or line from host memory.
    miss_ns: u64,
    /// Fetches under way at once: a miss takes `miss_ns / miss_overlap` of HCA time.
    miss_overlap: u64,
    /// Entries of the MPT cache; 0 for an HCA without.
    mpt_entries: u64,
    /// Ways of the MPT cache.
    mpt_ways: u64,
    /// Lines of the MTT cache; 0 for an HCA without.
    mtt_lines: u64,
    /// Ways of the MTT cache.
    mtt_ways: u64,
    /// Pages per line of the MTT cache.
    mtt_line_pages: u64,
    /// Caller waits so long for a region to be made.
    alloc_ns: u64,
    /// Caller waits so long for a region to be freed.
    dealloc_ns: u64,
    /// Caller time per map.
    map_ns: u64,
    /// Caller time per mapped page.
    map_page_ns: u64,
    /// HCA time per map.
    map_hca_ns: u64,
    /// HCA time to fetch a page list that is too long for the work request.
    map_list_hca_ns: u64,
    /// Pages whose list fits into the work request.
    map_inline_pages: u64,
    /// Caller time of a soft invalidation.
    soft_invalidate_ns: u64,
    /// Caller time per region of an invalidation.
    unmap_ns: u64,
    /// Caller time per page of an invalidation.
    unmap_page_ns: u64,
    /// Caller waits so long for a global fence.
    sync_ns: u64,
    /// The data path stands still so long in a global fence.
    stall_ns: u64,
    /// Caller time to post one chain of per-key invalidations.
    doorbell_ns: u64,
    /// HCA time per key of such a chain.
    invalidate_hca_ns: u64,
    /// Caller waits so long for the completion at its end, beyond the chain itself.
    completion_ns: u64,
    /// HCA time that the peer's invalidation adds.
    remote_invalidate_hca_ns: u64,
}
