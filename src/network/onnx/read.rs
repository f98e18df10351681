//! From the messages of a file to a graph.

use super::messages;
use super::upgrade::{Draft, Given, attributes, flattens, upgrade};
use super::{OnnxError, UnsupportedOperator, tensor};
use crate::network::attribute::Attributes;
use crate::network::custom::Operators;
use crate::network::graph::{Applied, EdgeId, Graph, Node, Source};
use crate::network::network::Network;
use crate::network::operator::Operator;
use crate::network::tensor::Tensor;
use crate::network::types::{Dim, Type};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

struct Reader<'a> {
    operators: &'a Operators,
    folder: Option<&'a Path>,
    opset: i64,
    graph: Graph,
    edges: HashMap<String, EdgeId>,
    unsupported: BTreeMap<String, Vec<String>>,
}

/// The network of a model.
pub(super) fn network(model: &messages::Model, operators: &Operators, folder: Option<&Path>) -> Result<Network, OnnxError> {
    let own = |set: &&messages::OperatorSet| is_own(set.domain.as_deref().unwrap_or(""));
    let opset = model.opset_import.iter().find(own).and_then(|set| set.version).unwrap_or(1);
    let graph = model.graph.as_ref().ok_or_else(|| OnnxError::Decode("it has no graph".to_owned()))?;
    let (edges, unsupported) = (HashMap::new(), BTreeMap::new());
    let mut reader = Reader { operators, folder, opset, graph: Graph::default(), edges, unsupported };
    for initializer in &graph.initializer {
        let tensor = tensor::read(initializer, folder)?;
        reader.constant(initializer.name.as_deref().unwrap_or_default(), tensor);
    }
    for input in &graph.input {
        reader.input(input)?;
    }
    for (index, node) in graph.node.iter().enumerate() {
        reader.node(index, node)?;
    }
    if !reader.unsupported.is_empty() {
        let list = reader.unsupported.into_iter().map(|(operator, nodes)| UnsupportedOperator { operator, nodes });
        return Err(OnnxError::Unsupported(list.collect()));
    }
    for output in &graph.output {
        let name = output.name.clone().unwrap_or_default();
        let edge = reader.edges.get(&name).copied();
        let edge = edge.ok_or_else(|| OnnxError::Dangling { node: name.clone(), tensor: name.clone() })?;
        reader.graph.outputs.push((name.into(), edge));
    }
    Ok(Network::from_graph(reader.graph)?)
}

/// Whether a domain is that of ONNX's own operators.
fn is_own(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

impl Reader<'_> {
    fn constant(&mut self, name: &str, tensor: Tensor) -> EdgeId {
        let edge = self.graph.add_edge(name, Source::Constant(tensor));
        if !name.is_empty() {
            self.edges.insert(name.to_owned(), edge);
        }
        edge
    }

    fn input(&mut self, input: &messages::ValueInfo) -> Result<(), OnnxError> {
        let name = input.name.clone().unwrap_or_default();
        // Old files list their weights among the inputs.
        if self.edges.contains_key(&name) {
            return Ok(());
        }
        let fail = |why: String| OnnxError::Input { name: name.clone(), why };
        let kind = input.kind.as_ref().and_then(|kind| kind.tensor.as_ref());
        let kind = kind.ok_or_else(|| fail("it is not a tensor".to_owned()))?;
        let format = tensor::format(kind.elem_type.unwrap_or(0)).map_err(|fault| fail(fault.to_string()))?;
        let extent = |extent: &messages::Extent| match (extent.value, extent.name.as_deref()) {
            (Some(value), _) => usize::try_from(value).map_or(Dim::Unknown, Dim::Known),
            (None, Some(name)) if !name.is_empty() => Dim::from(name),
            _ => Dim::Unknown,
        };
        let dims = kind.shape.as_ref().map(|shape| shape.dim.iter().map(extent).collect());
        let edge = self.graph.add_edge(name.as_str(), Source::Input(Type { format, dims }));
        self.edges.insert(name, edge);
        Ok(())
    }

    fn node(&mut self, index: usize, message: &messages::Node) -> Result<(), OnnxError> {
        let name = message.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| format!("n{index}"));
        let (operator, domain) = (message.op_type.clone().unwrap_or_default(), message.domain.as_deref().unwrap_or(""));
        let folder = self.folder;
        let (attributes, complete) = attributes(message, |message| tensor::read(message, folder))?;
        let custom = self.operators.get(&operator).cloned().map(Applied::Custom);
        let row = if is_own(domain) && complete {
            Operator::named(&operator).filter(|row| row.is_onnx).map(Applied::Row)
        } else {
            None
        };
        let Some(applied) = row.or(custom) else {
            let full = if is_own(domain) { operator } else { format!("{domain}.{operator}") };
            self.unsupported.entry(full).or_default().push(name);
            // What reads its outputs is not at fault, too.
            for output in message.output.iter().filter(|output| !output.is_empty()) {
                self.edges.entry(output.clone()).or_insert(EdgeId::new(0));
            }
            return Ok(());
        };
        let inputs = message.input.iter().cloned().map(Given::Named).collect();
        let mut draft = Draft { operator, inputs, attributes };
        upgrade(&mut draft, self.opset).map_err(|fault| OnnxError::Node { node: name.clone(), fault })?;
        let inputs = self.resolved(&name, draft.inputs)?;
        let outputs: Vec<String> = match &applied {
            // Running statistics of training, which inference does not write.
            Applied::Row(row) if row.name == "BatchNormalization" => message.output.iter().take(1).cloned().collect(),
            Applied::Row(row) if row.name == "Split" => message.output.clone(),
            _ => {
                let used = message.output.iter().rposition(|output| !output.is_empty()).map_or(1, |last| last + 1);
                message.output.iter().take(used).cloned().collect()
            }
        };
        let mut node = Node {
            name: name.into(),
            operator: applied,
            attributes: draft.attributes,
            inputs,
            outputs: Vec::new(),
            built_at: None,
        };
        if flattens(&draft.operator, self.opset) {
            return self.flattened(node, &outputs);
        }
        let names = outputs.iter().enumerate().map(|(i, name)| self.output_name(index, i, name)).collect();
        // `num_outputs` says what the outputs say.
        node.attributes.0.remove("num_outputs");
        let edges = self.graph.add_node(node, names);
        for (output, edge) in outputs.into_iter().zip(edges) {
            if !output.is_empty() {
                self.edges.insert(output, edge);
            }
        }
        Ok(())
    }

    fn output_name(&self, index: usize, output: usize, name: &str) -> Arc<str> {
        if name.is_empty() { format!("n{index}.{output}").into() } else { name.into() }
    }

    fn resolved(&mut self, node: &str, inputs: Vec<Given>) -> Result<Vec<Option<EdgeId>>, OnnxError> {
        let mut out = Vec::new();
        for input in inputs {
            out.push(match input {
                Given::Named(name) if name.is_empty() => None,
                Given::Named(name) => {
                    let edge = self.edges.get(&name).copied();
                    Some(edge.ok_or_else(|| OnnxError::Dangling { node: node.to_owned(), tensor: name })?)
                }
                Given::Constant(tensor) => Some(self.constant("", tensor)),
            });
        }
        Ok(out)
    }

    /// A row function over all axes from its own on: a view as a matrix, the function of its rows, and back.
    fn flattened(&mut self, mut node: Node, outputs: &[String]) -> Result<(), OnnxError> {
        let axis = node.attributes.int_or("axis", 1);
        let x = node.inputs.clone();
        let mut add = |operator: &'static str, inputs: Vec<Option<EdgeId>>, attributes: Attributes, output: &str| {
            let row = Operator::named(operator).map(Applied::Row);
            let name: Arc<str> = format!("{}.{operator}", node.name).into();
            row.map(|operator| {
                let added = Node { name, operator, attributes, inputs, outputs: Vec::new(), built_at: None };
                self.graph.add_node(added, vec![output.into()])[0]
            })
        };
        let shape = add("Shape", x.clone(), Attributes::new(), &format!("{}.shape", node.name));
        let matrix = add("Flatten", x, Attributes::new().with("axis", axis), &format!("{}.matrix", node.name));
        node.attributes = Attributes::new().with("axis", -1i64);
        let rows = {
            let inputs = vec![matrix];
            let name: Arc<str> = format!("{}.rows", node.name).into();
            self.graph.add_node(Node { inputs, ..node.clone() }, vec![name])[0]
        };
        let output = outputs.first().cloned().unwrap_or_default();
        let row = Operator::named("Reshape").map(Applied::Row);
        if let Some(operator) = row {
            let name: Arc<str> = format!("{}.Reshape", node.name).into();
            let inputs = vec![Some(rows), shape];
            let back = Node { name, operator, attributes: Attributes::new(), inputs, outputs: Vec::new(), built_at: None };
            let edge = self.graph.add_node(back, vec![output.as_str().into()])[0];
            self.edges.insert(output, edge);
        }
        Ok(())
    }
}
