//! Operands that are widened, or scaled along K.

use crate::problem::Operation;

/// Why a mainloop that sums 128 elements before it multiplies by a scale cannot scale an operand. If it widens one, it
/// multiplies a copy.
pub(super) fn odd_blocks(operation: Operation) -> Option<String> {
    if operation.widened().is_some() {
        return None;
    }
    let odd = operation.scales().into_iter().flatten().find(|blocks| !blocks.terms.is_multiple_of(128));
    odd.map(|blocks| format!("it scales sums of 128 elements of K, and blocks have {}", blocks.terms))
}
