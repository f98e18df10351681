//! Losses: how far scores of classes are from the classes that were meant.

use crate::network::fault::Fault;
use crate::network::operator::Call;
use crate::network::tensor::Tensor;

/// The place of a target's score, and its weight; `None` if the target is ignored.
type Asked = Option<(usize, f64)>;

/// The scores that targets name, each with its weight, and the sum of the weights.
fn asked(call: &Call<'_>, scores: &Tensor, weights: Option<&Tensor>) -> Result<(Vec<Asked>, f64), Fault> {
    let target = call.input(1)?;
    if scores.rank() < 2 {
        return Err(Fault::Shape(format!("{scores} has no classes")));
    }
    let [_, classes, inner] = super::around(scores.shape(), 1);
    if target.shape() != shape_of_targets(scores) {
        return Err(Fault::Shape(format!("targets {target} are not one for each score of {scores}")));
    }
    let weights = weights.map(Tensor::numbers);
    if weights.as_ref().is_some_and(|weights| weights.len() != classes) {
        return Err(Fault::Shape(format!("weights are not one for each of {classes} classes")));
    }
    let ignored = call.attributes.int("ignore_index").map(i128::from);
    let (mut all, mut total) = (Vec::new(), 0.0);
    for (i, class) in target.integers().into_iter().enumerate() {
        if Some(class) == ignored {
            all.push(None);
            continue;
        }
        let class = usize::try_from(class).ok().filter(|class| *class < classes);
        let class = class.ok_or_else(|| Fault::Value(format!("a target is none of {classes} classes")))?;
        let weight = weights.as_ref().map_or(1.0, |weights| weights[class]);
        let (image, place) = (i / inner.max(1), i % inner.max(1));
        all.push(Some(((image * classes + class) * inner + place, weight)));
        total += weight;
    }
    Ok((all, total))
}

fn shape_of_targets(scores: &Tensor) -> Vec<usize> {
    scores.shape().iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, extent)| *extent).collect()
}

fn reduction<'a>(call: &'a Call<'_>) -> Result<&'a str, Fault> {
    match call.attributes.text_or("reduction", "mean") {
        known @ ("none" | "sum" | "mean") => Ok(known),
        other => Err(Fault::attribute("reduction", format!("has no value `{other}`"))),
    }
}

/// The weighted negative of each target's score, reduced as the node asks.
fn loss(call: &Call<'_>, scores: &Tensor, numbers: &[f64]) -> Result<Tensor, Fault> {
    let (all, total) = asked(call, scores, call.get(2))?;
    let losses: Vec<f64> = all.iter().map(|asked| asked.map_or(0.0, |(place, weight)| -weight * numbers[place])).collect();
    let sum: f64 = losses.iter().sum();
    match reduction(call)? {
        "none" => Tensor::of_numbers(scores.format(), &shape_of_targets(scores), &losses),
        "sum" => Ok(Tensor::scalar(scores.format(), sum)),
        _ => Ok(Tensor::scalar(scores.format(), sum / total)),
    }
}

/// `NegativeLogLikelihoodLossGradient`: the gradient of the scores, from that of the loss.
pub(crate) fn negative_log_likelihood_gradient(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let (scores, incoming) = (call.input(0)?, call.input(2)?.numbers());
    let (all, total) = asked(call, scores, call.get(3))?;
    let each = reduction(call)? == "none";
    if incoming.len() != if each { all.len() } else { 1 } {
        return Err(Fault::Shape(format!("{} gradients are not those of the loss", incoming.len())));
    }
    let over = if reduction(call)? == "mean" { total } else { 1.0 };
    let mut out = vec![0.0; scores.len()];
    for (i, asked) in all.iter().enumerate() {
        let Some((place, weight)) = *asked else { continue };
        out[place] = -weight * incoming[if each { i } else { 0 }] / over;
    }
    Ok(vec![Tensor::of_numbers(scores.format(), scores.shape(), &out)?])
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
