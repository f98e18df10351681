//! Every node case, and the cases that PyTorch exported.

use crate::{agrees, data, tensor};
use postlude::network::onnx::OnnxError;
use postlude::network::{Network, Operators};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The folders of cases.
const SUITES: [&str; 4] = ["node", "simple", "pytorch-converted", "pytorch-operator"];

/// How many cases have to pass at least.
const LEAST: usize = 1300;

/// Why a case does not pass, in a few words.
fn reason(error: &OnnxError) -> String {
    match error {
        OnnxError::Unsupported(list) => {
            let names: Vec<&str> = list.iter().map(|missing| missing.operator.as_str()).collect();
            format!("no operator {}", names.join(", "))
        }
        OnnxError::Check(faults) => faults.iter().next().map(|fault| fault.message().to_owned()).unwrap_or_default(),
        other => other.to_string(),
    }
}

/// Runs a case: what it gives agrees with every set of data that it has.
fn case(folder: &Path) -> Result<(), String> {
    let bytes = fs::read(folder.join("model.onnx")).map_err(|error| error.to_string())?;
    let network = Network::from_onnx(&bytes, &Operators::new()).map_err(|error| reason(&error))?;
    let mut sets = 0;
    for set in (0..).map(|i| folder.join(format!("test_data_set_{i}"))).take_while(|set| set.is_dir()) {
        let names: Vec<String> = network.inputs().map(|(name, _)| name.to_owned()).collect();
        let mut inputs = Vec::new();
        for (index, name) in names.iter().enumerate() {
            inputs.push((name.as_str(), tensor(&set.join(format!("input_{index}.pb")))?));
        }
        let outputs = network.run(&inputs).map_err(|error| error.to_string().lines().next().unwrap_or("").to_owned())?;
        for (index, (name, output)) in outputs.iter().enumerate() {
            let expected = tensor(&set.join(format!("output_{index}.pb")))?;
            agrees(output, &expected)?;
            let inferred = network.outputs().find(|(known, _)| known == name).map(|(_, of)| of.clone());
            let inferred = inferred.ok_or("an output is lost")?;
            if !inferred.admits(output) {
                return Err(format!("is inferred as {inferred}, and is {output}"));
            }
        }
        // The same as kernels, which round less between nodes. A network whose extents are open has none.
        if let Ok(fused) = network.fuse() {
            let outputs =
                fused.run(&inputs).map_err(|error| format!("fused, {}", error.to_string().lines().next().unwrap_or("")))?;
            for (index, (_, output)) in outputs.iter().enumerate() {
                let expected = tensor(&set.join(format!("output_{index}.pb")))?;
                agrees(output, &expected).map_err(|why| format!("fused, {why}"))?;
            }
        }
        sets += 1;
    }
    if sets > 0 { Ok(()) } else { Err("has no data".to_owned()) }
}

#[test]
fn every_case_is_as_listed() {
    let Some(data) = data() else { return };
    let mut found: BTreeMap<String, Result<(), String>> = BTreeMap::new();
    for suite in SUITES {
        let mut cases: Vec<_> =
            fs::read_dir(data.join(suite)).expect("a folder").map(|entry| entry.expect("one").path()).collect();
        cases.sort();
        for folder in cases.into_iter().filter(|folder| folder.is_dir()) {
            let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
            let name = format!("{suite}/{}", name.trim_start_matches("test_"));
            found.insert(name, case(&folder));
        }
    }
    let passed = found.values().filter(|outcome| outcome.is_ok()).count();
    let line = |(name, outcome): (&String, &Result<(), String>)| match outcome {
        Ok(()) => format!("{name}\n"),
        Err(why) => format!("{name}: {}\n", why.chars().take(160).collect::<String>()),
    };
    let list: String = found.iter().map(line).collect();
    println!("{passed} of {} cases pass", found.len());
    crate::same_as_listed("conformance.txt", &list);
    assert!(passed >= LEAST, "only {passed} cases pass");
}
