//! What links markers, of any threads.

/// The id of a flow: markers that have the same, in a field of [`Format::Flow`](crate::schema::Format::Flow), belong together,
/// until one has it in a field of [`Format::TerminatingFlow`](crate::schema::Format::TerminatingFlow). The viewer finds them by a
/// search for it.
///
/// It is a number of the host's, usually the address of what flows. As in Mozilla's crate it is used as it is; processes that
/// have their profiles in one file must tell theirs apart themselves.
#[doc(alias = "Flow")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FlowId(u64);

impl FlowId {
    /// Its 16 digits to the base of 16, as they stand in a profile.
    pub fn to_hex(self) -> [u8; 16] {
        std::array::from_fn(|place| b"0123456789abcdef"[(self.0 >> (60 - 4 * place)) as usize & 15])
    }
}

impl From<u64> for FlowId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

impl<T> From<*const T> for FlowId {
    fn from(pointer: *const T) -> Self {
        Self(pointer.cast::<()>().addr() as u64)
    }
}

impl<T> From<*mut T> for FlowId {
    fn from(pointer: *mut T) -> Self {
        Self::from(pointer.cast_const())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_sixteen_digits() {
        assert_eq!(&FlowId::from(0u64).to_hex(), b"0000000000000000");
        assert_eq!(
            &FlowId::from(0x0123_4567_89ab_cdefu64).to_hex(),
            b"0123456789abcdef"
        );
        let here = 7u8;
        let mut there = 7u8;
        assert_eq!(
            FlowId::from(&raw const here),
            FlowId::from(&raw const here as u64)
        );
        assert_ne!(FlowId::from(&raw mut there), FlowId::from(&raw const here));
    }
}
