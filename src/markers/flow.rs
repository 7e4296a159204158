//! Flow ids, which link markers of any threads.

use crate::types::serde_as_inner;

/// The id of a flow, which links markers.
///
/// Markers with the same id in a field of [`Format::Flow`](crate::schema::Format::Flow) belong
/// together, until a marker has the id in a field of
/// [`Format::TerminatingFlow`](crate::schema::Format::TerminatingFlow). The viewer finds linked
/// markers by a search for the id.
///
/// The application chooses the id, usually the address of the object that flows. As in Mozilla's
/// crate, the id is used unchanged: if several processes share one profile, they must choose
/// distinct ids.
#[doc(alias = "Flow")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowId(u64);

serde_as_inner!(FlowId(u64));

impl FlowId {
    /// Returns the id as 16 hexadecimal digits, the form used in a profile.
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
    fn to_hex_returns_sixteen_digits() {
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
