//! Which mainloops widen an operand, or scale it along K.

use crate::plan::Mainloop;
use crate::problem::{Layout, Operation};
use crate::target::Target;

/// The most rows of a `gemv` whose weights have fewer bits than its activations.
pub(in crate::plan) const FEW_WIDENED: usize = 16;

/// Why a mainloop cannot widen or scale an operand, if it cannot.
pub(in crate::plan) fn why_not(mainloop: Mainloop, operation: Operation, layout: Layout, target: Target) -> Option<String> {
    match (mainloop, operation.widened()) {
        (Mainloop::Simt | Mainloop::Pointwise | Mainloop::Rows, _) => None,
        (Mainloop::Gemv, Some(_)) if layout != Layout::TN => {
            Some(format!("weights of fewer bits are read with K contiguous, which is TN, and these are {layout}"))
        }
        (Mainloop::Gemv, Some(_)) if !target.has_cp_async_and_mma16() => Some(format!("{target} has no mma.sync.m16n8k16")),
        (Mainloop::Gemv, Some(_)) => None,
        // They multiply a copy.
        (_, Some(_)) => None,
        (Mainloop::Gemv, None) => operation.is_scaled().then(|| "it has no scales along K".into()),
        // Both sum 128 elements before they multiply by a scale.
        (_, None) => {
            let odd = operation.scales().into_iter().flatten().find(|blocks| !blocks.terms.is_multiple_of(128));
            odd.map(|blocks| format!("it scales sums of 128 elements of K, and blocks have {}", blocks.terms))
        }
    }
}
