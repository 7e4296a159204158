//! Flow ids, which link markers of any threads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::serde_as_inner;

/// The id of a flow, which links markers.
///
/// Markers with the same id in a field of [`Format::Flow`](crate::schema::Format::Flow) belong
/// together, until a marker has the id in a field of
/// [`Format::TerminatingFlow`](crate::schema::Format::TerminatingFlow). The viewer finds linked
/// markers by a search for the id.
///
/// The application chooses the id, usually the address of the object that flows. As in Mozilla's
/// crate, a number is used unchanged: if several processes share one profile, and their flows are
/// not the same, they must choose distinct numbers. So is an address, with one exception. In a child
/// process that belongs to its parent's session, an address is combined with the process id,
/// because another process may have another object at the same address.
#[doc(alias = "Flow")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowId(u64);

serde_as_inner!(FlowId(u64));

/// Makes addresses of this process distinct from those of other processes in the same profile.
static SCOPE: AtomicU64 = AtomicU64::new(0);

/// Makes the flow ids of addresses distinct from those of other processes. `process` is the id of
/// this process.
pub(crate) fn scope_addresses_to_process(process: u32) {
    // An odd factor: distinct processes have distinct products, spread over all bits.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    SCOPE.store(u64::from(process).wrapping_mul(SPREAD), Ordering::Relaxed);
}

impl FlowId {
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

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
        let address = pointer.cast::<()>().addr() as u64;
        Self(address ^ SCOPE.load(Ordering::Relaxed))
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
