//! Losses: how far scores of classes are from the classes that were meant.

use crate::network::fault::Fault;
use crate::network::operator::Call;
use crate::network::tensor::Tensor;

/// The weighted negative of each target's score, reduced as the node asks.
fn loss(call: &Call<'_>, scores: &Tensor, numbers: &[f64]) -> Result<Tensor, Fault> {
    let target = call.input(1)?;
    if scores.rank() < 2 {
        return Err(Fault::Shape(format!("{scores} has no classes")));
    }
    let [_, classes, inner] = super::around(scores.shape(), 1);
    let mut shape = scores.shape().to_vec();
    shape.remove(1);
    if target.shape() != shape {
        return Err(Fault::Shape(format!("targets {target} are not one for each score of {scores}")));
    }
    let weights = call.get(2).map(Tensor::numbers);
    if weights.as_ref().is_some_and(|weights| weights.len() != classes) {
        return Err(Fault::Shape(format!("weights are not one for each of {classes} classes")));
    }
    let ignored = call.attributes.int("ignore_index").map(i128::from);
    let (mut losses, mut total) = (Vec::new(), 0.0);
    for (i, class) in target.integers().into_iter().enumerate() {
        if Some(class) == ignored {
            losses.push(0.0);
            continue;
        }
        let class = usize::try_from(class).ok().filter(|class| *class < classes);
        let class = class.ok_or_else(|| Fault::Value(format!("a target is none of {classes} classes")))?;
        let weight = weights.as_ref().map_or(1.0, |weights| weights[class]);
        let (image, place) = (i / inner.max(1), i % inner.max(1));
        losses.push(-weight * numbers[(image * classes + class) * inner + place]);
        total += weight;
    }
    let sum: f64 = losses.iter().sum();
    match call.attributes.text_or("reduction", "mean") {
        "none" => Tensor::of_numbers(scores.format(), &shape, &losses),
        "sum" => Ok(Tensor::scalar(scores.format(), sum)),
        "mean" => Ok(Tensor::scalar(scores.format(), sum / total)),
        other => Err(Fault::attribute("reduction", format!("has no value `{other}`"))),
    }
}

/// `NegativeLogLikelihoodLoss`.
pub(crate) fn negative_log_likelihood(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let scores = call.input(0)?;
    Ok(vec![loss(call, scores, &scores.numbers())?])
}

/// `SoftmaxCrossEntropyLoss`, with the logarithms of the softmax on request.
pub(crate) fn softmax_cross_entropy(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let attributes = crate::network::Attributes::new().with("axis", 1i64);
    let logs = super::normal::log_softmax(&Call { attributes: &attributes, ..*call })?.remove(0);
    let mut out = vec![loss(call, &logs, &logs.numbers())?];
    if call.outputs > 1 {
        out.push(logs);
    }
    Ok(out)
}
