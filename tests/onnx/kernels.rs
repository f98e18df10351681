//! Which cases have kernels, and why others have not. It needs no GPU.

use crate::{data, tensor};
use postlude::network::{Format, Network, Operators, Tensor};
use std::path::{Path, PathBuf};

/// The tensors of a set of data whose names begin so.
pub fn tensors(set: &Path, kind: &str) -> Result<Vec<Tensor>, String> {
    let paths = (0..).map(|index| set.join(format!("{kind}_{index}.pb"))).take_while(|path| path.is_file());
    paths.map(|path| tensor(&path)).collect()
}

/// The network of a case. Its tests pass shapes, axes and numbers of elements as inputs, where models have constants: inputs of
/// whole numbers with at most one axis are fixed, unless nothing else is left to pass.
pub fn network(folder: &Path) -> Result<Network, String> {
    let line = |error: &dyn ToString| error.to_string().lines().next().unwrap_or_default().to_owned();
    let bytes = std::fs::read(folder.join("model.onnx")).map_err(|error| line(&error))?;
    let network = Network::from_onnx(&bytes, &Operators::new()).map_err(|error| line(&error))?;
    let one_set = !folder.join("test_data_set_1").exists();
    let given = tensors(&folder.join("test_data_set_0"), "input")?;
    let names: Vec<String> = network.inputs().map(|(name, _)| name.to_owned()).collect();
    let inputs = names.iter().map(String::as_str).zip(given);
    let (whole, rest): (Vec<_>, Vec<_>) = inputs.partition(|(_, tensor)| tensor.format() == Format::I64 && tensor.rank() < 2);
    if rest.is_empty() || !one_set { Ok(network) } else { network.fix(&whole).map_err(|error| line(&error)) }
}

/// The inputs that a network has left, of a set of data. `all` has every one of them.
pub fn inputs<'a>(set: &Path, all: &'a Network, network: &Network) -> Result<Vec<(&'a str, Tensor)>, String> {
    let named = all.inputs().map(|(name, _)| name).zip(tensors(set, "input")?);
    Ok(named.filter(|(name, _)| network.inputs().any(|(known, _)| known == *name)).collect())
}

/// Whether outputs are as many as expected, and agree.
pub fn agree(outputs: &[(String, Tensor)], set: &Path) -> Result<(), String> {
    let expected = tensors(set, "output")?;
    if outputs.len() != expected.len() {
        return Err(format!("gives {} outputs of {}", outputs.len(), expected.len()));
    }
    outputs
        .iter()
        .zip(expected)
        .try_for_each(|((name, output), expected)| crate::agrees(output, &expected).map_err(|why| format!("{name} {why}")))
}

/// The sets of data of a case.
pub fn sets(folder: &Path) -> impl Iterator<Item = PathBuf> {
    (0..).map(|i| folder.join(format!("test_data_set_{i}"))).take_while(|set| set.is_dir())
}

/// How many kernels a case has, or why not. What they compute on the CPU agrees.
fn kernels(folder: &Path) -> Result<usize, String> {
    let network = network(folder)?;
    let fused = network.fuse().map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
    let reasons: Vec<String> = fused.unserved().map(|(node, why)| format!("{} {why}", node.operator_name())).collect();
    let all = Network::from_onnx(&std::fs::read(folder.join("model.onnx")).unwrap_or_default(), &Operators::new());
    let all = all.map_err(|error| error.to_string())?;
    for set in sets(folder) {
        let outputs = fused.run(&inputs(&set, &all, &network)?).map_err(|error| format!("does not run: {error}"))?;
        agree(&outputs, &set).map_err(|why| format!("does not agree: {why}"))?;
    }
    if reasons.is_empty() { Ok(fused.kernels().count()) } else { Err(reasons.join("; ")) }
}

#[test]
fn every_case_has_kernels_as_listed() {
    let Some(data) = data() else { return };
    let mut served = [0, 0];
    let mut list = String::new();
    for name in crate::passing() {
        let Some(folder) = crate::folder(&data, name) else { continue };
        match kernels(&folder) {
            Ok(kernels) => served[usize::from(kernels > 0)] += 1,
            Err(why) => list += &format!("{name}: {}\n", why.chars().take(160).collect::<String>()),
        }
    }
    assert!(!list.contains(": does not "), "{list}");
    println!("{} cases have kernels, {} need none, {} have none", served[1], served[0], list.lines().count());
    crate::same_as_listed("kernels.txt", &list);
}
