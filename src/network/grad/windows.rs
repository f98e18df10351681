//! Convolutions and pools.

use super::tape::{Found, Step, Tape, extents};
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::graph::EdgeId;
use crate::network::meaning::convolve::Transposed;

/// The sum over images and pixels: the gradient of a bias of each channel.
fn of_bias(tape: &mut Tape, step: &Step<'_>, g: EdgeId) -> Result<EdgeId, Fault> {
    let axes: Vec<i64> = (0..tape.rank(g)? as i64).filter(|axis| *axis != 1).collect();
    let axes = tape.indices(&axes);
    let sum = tape.apply("ReduceSum", &[g, axes], Attributes::new().with("keepdims", 0i64))?;
    tape.shaped(sum, step.input(2)?)
}

/// The extents of the axes behind the first two.
fn spatial(tape: &Tape, x: EdgeId) -> Result<Vec<i64>, Fault> {
    let dims = tape.dims(x)?;
    let known: Option<Vec<usize>> = dims.iter().skip(2).map(|dim| dim.known()).collect();
    let unknown = || Fault::Unsupported("the gradient of windows over extents that are not numbers".to_owned());
    Ok(extents(&known.ok_or_else(unknown)?))
}

/// `Conv`: two operators of the table's own, each of which is a kernel, and a sum.
pub(crate) fn conv(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, w, g) = (step.input(0)?, step.input(1)?, step.gradient()?);
    let of = &step.node.attributes;
    let mut found = vec![None; step.node.inputs.len()];
    if step.wants(0) {
        let image = of.clone().with("image_shape", spatial(tape, x)?);
        found[0] = Some(tape.apply("ConvImageGradient", &[g, w], image)?);
    }
    if step.wants(1) {
        let window = of.clone().with("kernel_shape", spatial(tape, w)?);
        found[1] = Some(tape.apply("ConvFilterGradient", &[g, x], window)?);
    }
    if step.wants(2) {
        found[2] = Some(of_bias(tape, step, g)?);
    }
    Ok(found)
}

/// `ConvTranspose`: a convolution of the gradient, and the gradient of that convolution's filters.
pub(crate) fn conv_transpose(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, w, g) = (step.input(0)?, step.input(1)?, step.gradient()?);
    let (image, window) = (tape.shape(x)?, tape.shape(w)?);
    let t = Transposed::new(&step.node.attributes, &image[2..], &window[2..])?;
    let pads: Vec<usize> = t.pads.iter().map(|pad| pad[0]).chain(t.pads.iter().map(|pad| pad[1])).collect();
    let place = Attributes::new()
        .with("strides", extents(&t.strides))
        .with("dilations", extents(&t.dilations))
        .with("group", step.node.attributes.int_or("group", 1))
        .with("kernel_shape", extents(&window[2..]));
    let placed = place.clone().with("pads", extents(&pads));
    let mut found = vec![None; step.node.inputs.len()];
    // Padding behind the last window lies in no window, so the gradient's last elements may be cut off.
    let gradient = cut(tape, g, &image, &t, &window)?;
    if step.wants(0) {
        found[0] = Some(tape.apply("Conv", &[gradient, w], placed.clone())?);
    }
    if step.wants(1) {
        found[1] = Some(tape.apply("ConvFilterGradient", &[x, gradient], placed)?);
    }
    if step.wants(2) {
        found[2] = Some(of_bias(tape, step, g)?);
    }
    Ok(found)
}

/// The gradient with as many elements as the windows of the input reach: with others there would be more windows, or fewer.
fn cut(tape: &mut Tape, g: EdgeId, image: &[usize], t: &Transposed, window: &[usize]) -> Result<EdgeId, Fault> {
    let mut pads = vec![0i64; 2 * image.len()];
    for axis in 0..t.out.len() {
        let reach = (image[2 + axis].max(1) - 1) * t.strides[axis] + (window[2 + axis].max(1) - 1) * t.dilations[axis] + 1;
        let padded = t.out[axis] + t.pads[axis][0] + t.pads[axis][1];
        // As many windows as the input has elements fit from `reach` up to the next stride.
        let most = reach + t.strides[axis] - 1;
        pads[image.len() + 2 + axis] =
            if padded > most { most as i64 - padded as i64 } else { (reach as i64 - padded as i64).max(0) };
    }
    if pads.iter().all(|pad| *pad == 0) {
        return Ok(g);
    }
    let pads = tape.indices(&pads);
    tape.binary("Pad", g, pads)
}

/// `MaxPool`, `AveragePool` and `LpPool`: an operator of the table's own.
fn pool(tape: &mut Tape, step: &Step<'_>, operator: &str) -> Found {
    let (x, g) = (step.input(0)?, step.gradient()?);
    Ok(vec![Some(tape.apply(operator, &[x, g], step.node.attributes.clone())?)])
}

/// `MaxPool`: to the first largest element of each window.
pub(crate) fn max_pool(tape: &mut Tape, step: &Step<'_>) -> Found {
    pool(tape, step, "MaxPoolGradient")
}

/// `AveragePool`: in equal parts to the elements of each window.
pub(crate) fn average_pool(tape: &mut Tape, step: &Step<'_>) -> Found {
    pool(tape, step, "AveragePoolGradient")
}

/// `LpPool`.
pub(crate) fn lp_pool(tape: &mut Tape, step: &Step<'_>) -> Found {
    pool(tape, step, "LpPoolGradient")
}

/// `GlobalAveragePool`: in equal parts.
pub(crate) fn global_average_pool(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (x, g) = (step.input(0)?, step.gradient()?);
    let axes: Vec<usize> = (2..tape.rank(x)?).collect();
    let part = super::reduce::over_count(tape, x, g, &axes)?;
    Ok(vec![Some(tape.stretched(part, x)?)])
}

/// A pool of whole images as one whose window is the image.
fn whole(tape: &mut Tape, step: &Step<'_>, operator: &str) -> Found {
    let (x, g) = (step.input(0)?, step.gradient()?);
    let window = step.node.attributes.clone().with("kernel_shape", spatial(tape, x)?);
    Ok(vec![Some(tape.apply(operator, &[x, g], window)?)])
}

/// `GlobalMaxPool`: to the first largest element.
pub(crate) fn global_max_pool(tape: &mut Tape, step: &Step<'_>) -> Found {
    whole(tape, step, "MaxPoolGradient")
}

/// `GlobalLpPool`.
pub(crate) fn global_lp_pool(tape: &mut Tape, step: &Step<'_>) -> Found {
    whole(tape, step, "LpPoolGradient")
}
