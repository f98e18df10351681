//! How a kernel reads images, as its template sees it.

use crate::plan::KernelPlan;
use crate::problem::GradientOf;
use serde::Serialize;

/// What reads patches of images, and what a mainloop has to gather itself.
#[derive(Serialize)]
pub(super) struct Reads {
    /// Whether an operand is made of patches of images.
    convolution: bool,
    /// Whether that is B, as in the gradient of filters.
    of_columns: bool,
    /// Whether B is the filters, with channels along a row, as in the gradient of images.
    turned: bool,
    /// Whether the images that are read have zeros between their pixels; or whether rows of one remainder follow each other,
    /// which leaves no zeros.
    spread: bool,
    residues: bool,
    /// Whether blocks of `depthwise_lines` go on from tile to tile.
    in_turns: bool,
    /// Whether a thread of `depthwise_lines` loads the matrices of a row before it multiplies the row's last lines.
    loads_ahead: bool,
    /// Whether a tile's columns may be filters of several groups.
    spans_groups: bool,
    /// Which operands a mainloop gathers element by element.
    gathers_a: bool,
    gathers_b: bool,
    /// What a mainloop calls the elements of K that a tile multiplies.
    terms: &'static str,
}

impl Reads {
    pub(super) fn of(plan: &KernelPlan) -> Reads {
        let patches = plan.operation.patches();
        let gradient = patches.and_then(|patches| patches.gradient);
        let spans_groups = plan.tile.spans_groups(plan.operation);
        Reads {
            convolution: patches.is_some(),
            of_columns: gradient == Some(GradientOf::Filters),
            turned: gradient == Some(GradientOf::Images),
            spread: patches.is_some_and(|patches| patches.windows().spread != [1; 2]) && !plan.residues,
            residues: plan.residues,
            in_turns: plan.takes_turns(),
            loads_ahead: plan.loads_ahead(),
            spans_groups,
            gathers_a: patches.is_some_and(|patches| patches.are_rows()),
            gathers_b: gradient.is_some() || spans_groups,
            terms: if patches.is_some() { "terms" } else { "p.k" },
        }
    }
}
