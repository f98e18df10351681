//! A drawing of a fused network: its nodes, in a box for each kernel.
//!
//! Boxes stand in layers, from top to bottom: each below everything that it reads. A line that passes a layer has a place in
//! it, as a box has, so it crosses none. Names are in the boxes alone, so nothing is written over a line.

use super::{Fused, Step};
use crate::ir::name::shown;
use crate::network::graph::{EdgeId, NodeId, Source};
use crate::network::print::node_line;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

/// Extents in pixels: a line of words, the space between nodes, the space around words, between boxes, between layers.
const LINE: f64 = 18.0;
const STEP: f64 = 10.0;
const PAD: f64 = 10.0;
const BESIDE: f64 = 24.0;
const BELOW: f64 = 44.0;
/// Wider than a character of the font is on average.
const LETTER: f64 = 7.2;
/// The most characters of a line.
const LONGEST: usize = 48;
/// How often boxes are moved towards what they read and what reads them.
const ROUNDS: usize = 24;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; }
.page { fill: #ffffff; } .soft { fill: #59636e; font-size: 11px; }
.kernel { fill: #eef4fb; stroke: #3b74b0; stroke-width: 1.5; } .cpu { fill: #fdecec; stroke: #b3404a; stroke-width: 1.5; }
.view { fill: none; stroke: #8c959f; stroke-dasharray: 4 3; } .given { fill: #f3f1e7; stroke: #8c7a3f; }
.operator { fill: #ffffff; stroke: #8c959f; }
.inside { fill: none; stroke: #8c959f; } .memory { fill: none; stroke: #3b74b0; stroke-width: 2.5; }
.seen { fill: none; stroke: #8c959f; stroke-width: 1.5; stroke-dasharray: 4 3; } .tip { fill: #3b74b0; stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; } .page { fill: #0d1117; } .soft { fill: #9198a1; }
.kernel { fill: #14253a; } .cpu { fill: #3a1418; } .given { fill: #2a2718; } .operator { fill: #0d1117; }
}
";

/// Text as XML writes it. What XML has no spelling for is replaced.
fn escaped(text: &str) -> String {
    let allowed = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let text: String = text.chars().map(|c| if allowed(c) { c } else { '\u{fffd}' }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A box: a kernel, a node without one, or what a caller passes or gets.
struct Card {
    class: &'static str,
    id: String,
    /// Words above the nodes, and below them.
    above: Vec<String>,
    nodes: Vec<NodeId>,
    below: Vec<String>,
    tip: String,
}

/// A place in a layer: of a box, or of a line that passes.
#[derive(Clone, Copy)]
struct Slot {
    card: Option<usize>,
    width: f64,
    x: f64,
}

impl Card {
    fn new(class: &'static str, id: String, above: Vec<String>) -> Card {
        Card { class, id, above, nodes: Vec::new(), below: Vec::new(), tip: String::new() }
    }

    fn height(&self) -> f64 {
        let nodes = self.nodes.len() as f64;
        (self.above.len() + self.below.len()) as f64 * LINE + nodes * (LINE + STEP) + if nodes > 0.0 { STEP } else { PAD }
    }

    fn top_of(&self, node: usize) -> f64 {
        self.above.len() as f64 * LINE + STEP + node as f64 * (LINE + STEP)
    }
}

/// What is drawn: boxes, and lines between them.
struct Drawing<'a> {
    fused: &'a Fused,
    cards: Vec<Card>,
    lines: BTreeSet<(usize, usize)>,
    card_of: HashMap<NodeId, usize>,
}

impl<'a> Drawing<'a> {
    fn new(fused: &'a Fused) -> Drawing<'a> {
        let graph = fused.network.graph();
        let mut drawing = Drawing { fused, cards: Vec::new(), lines: BTreeSet::new(), card_of: HashMap::new() };
        let typed = |edge: EdgeId| fused.network.type_of(edge).to_string();
        let mut given: HashMap<EdgeId, usize> = HashMap::new();
        for edge in graph.inputs() {
            let name = graph.edge(*edge).name.to_string();
            given.insert(*edge, drawing.cards.len());
            drawing.cards.push(Card::new("given", format!("e{}", edge.index()), vec![format!("input {name}"), typed(*edge)]));
        }
        for (at, step) in fused.steps.iter().enumerate() {
            let mut card = match step {
                Step::Kernel(kernel) => {
                    let mut card = Card::new("kernel", format!("k{at}"), vec![format!("kernel {at}")]);
                    card.tip = kernel.measures();
                    card.above.push(card.tip.clone());
                    let written = kernel.accesses.iter().filter(|access| access.written);
                    card.below = written.map(|access| format!("writes {}", typed(access.edge))).collect();
                    card.nodes.clone_from(&kernel.nodes);
                    card
                }
                Step::Node { node, why } => {
                    let mut card = Card::new("cpu", format!("k{at}"), vec![format!("on the CPU {at}")]);
                    (card.nodes, card.tip) = (vec![*node], why.clone());
                    card
                }
            };
            card.below.dedup();
            drawing.add(card);
        }
        for (id, node) in graph.nodes() {
            if !drawing.card_of.contains_key(&id) {
                let mut card = Card::new("view", format!("v{}", id.index()), Vec::new());
                card.nodes = vec![id];
                card.below = node.outputs.iter().take(1).map(|edge| typed(*edge)).collect();
                card.tip = "no kernel: its elements are read where they lie, or written where they belong".to_owned();
                drawing.add(card);
            }
        }
        let from = |edge: EdgeId, card_of: &HashMap<NodeId, usize>| match graph.edge(edge).source {
            Source::Node(node, _) => card_of.get(&node).copied(),
            Source::Input(_) => given.get(&edge).copied(),
            Source::Constant(_) => None,
        };
        for (id, node) in graph.nodes() {
            let to = drawing.card_of[&id];
            let sources = node.inputs.iter().flatten().filter_map(|edge| from(*edge, &drawing.card_of));
            drawing.lines.extend(sources.filter(|source| *source != to).map(|source| (source, to)).collect::<Vec<_>>());
        }
        for (index, (name, edge)) in graph.outputs().iter().enumerate() {
            let to = drawing.cards.len();
            drawing.cards.push(Card::new("given", format!("o{index}"), vec![format!("output {name}"), typed(*edge)]));
            drawing.lines.extend(from(*edge, &drawing.card_of).map(|source| (source, to)));
        }
        drawing
    }

    fn add(&mut self, card: Card) {
        self.card_of.extend(card.nodes.iter().map(|node| (*node, self.cards.len())));
        self.cards.push(card);
    }

    fn operator(&self, node: NodeId) -> String {
        shown(self.fused.network.graph().node(node).operator_name(), LONGEST)
    }

    fn width(&self, card: &Card) -> f64 {
        let operators = card.nodes.iter().map(|node| self.operator(*node).chars().count() + 4);
        let words = card.above.iter().chain(&card.below).map(|words| shown(words, LONGEST).chars().count());
        operators.chain(words).max().unwrap_or(0) as f64 * LETTER + 2.0 * PAD
    }

    /// The layer of each box: below all that it reads. What reads nothing stands right above its first reader.
    fn layers(&self) -> Vec<usize> {
        let mut layers = vec![0usize; self.cards.len()];
        // Lines form no circle, so that each round is right about one more layer.
        for _ in 0..self.cards.len() {
            let mut moved = false;
            for (from, to) in &self.lines {
                if layers[*to] <= layers[*from] {
                    layers[*to] = layers[*from] + 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        for card in 0..self.cards.len() {
            if !self.lines.iter().any(|(_, to)| *to == card) {
                let readers = self.lines.iter().filter(|(from, _)| *from == card).map(|(_, to)| layers[*to]);
                layers[card] = readers.min().map_or(0, |layer| layer.saturating_sub(1));
            }
        }
        layers
    }
}

/// Places in layers, and the way of each line through them.
struct Places {
    slots: Vec<Slot>,
    layers: Vec<Vec<usize>>,
    ways: Vec<Vec<usize>>,
}

impl Places {
    fn new(drawing: &Drawing<'_>) -> Places {
        let of = drawing.layers();
        let mut layers: Vec<Vec<usize>> = vec![Vec::new(); of.iter().max().map_or(0, |most| most + 1)];
        let mut slots = Vec::new();
        for (card, layer) in of.iter().enumerate() {
            layers[*layer].push(slots.len());
            slots.push(Slot { card: Some(card), width: drawing.width(&drawing.cards[card]), x: 0.0 });
        }
        let mut ways = Vec::new();
        for (from, to) in &drawing.lines {
            let mut way = vec![*from];
            for layer in &mut layers[of[*from] + 1..of[*to]] {
                way.push(slots.len());
                layer.push(slots.len());
                slots.push(Slot { card: None, width: 0.0, x: 0.0 });
            }
            way.push(*to);
            ways.push(way);
        }
        let mut places = Places { slots, layers, ways };
        places.arrange();
        places
    }

    /// Orders each layer by what it stands near to, and moves places there.
    fn arrange(&mut self) {
        let mut near: [Vec<Vec<usize>>; 2] = [vec![Vec::new(); self.slots.len()], vec![Vec::new(); self.slots.len()]];
        for pair in self.ways.iter().flat_map(|way| way.windows(2)) {
            near[0][pair[1]].push(pair[0]);
            near[1][pair[0]].push(pair[1]);
        }
        (0..self.layers.len()).for_each(|layer| self.settle(layer, &[]));
        for round in 0..ROUNDS {
            let down = round % 2 == 0;
            let order: Vec<usize> = if down { (0..self.layers.len()).collect() } else { (0..self.layers.len()).rev().collect() };
            for layer in order {
                self.settle(layer, &near[usize::from(!down)]);
            }
        }
    }

    /// Moves the places of a layer to the middle of their neighbours, as far as others allow. Early rounds change the order.
    fn settle(&mut self, layer: usize, near: &[Vec<usize>]) {
        let mut wanted: Vec<(usize, f64)> = Vec::new();
        for slot in &self.layers[layer] {
            let others = near.get(*slot).map_or(&[][..], Vec::as_slice);
            let sum: f64 = others.iter().map(|other| self.slots[*other].x).sum();
            wanted.push((*slot, if others.is_empty() { self.slots[*slot].x } else { sum / others.len() as f64 }));
        }
        wanted.sort_by(|a, b| a.1.total_cmp(&b.1));
        let apart = |a: usize, b: usize| (self.slots[a].width + self.slots[b].width) / 2.0 + BESIDE;
        let (mut right, mut left): (Vec<f64>, Vec<f64>) = wanted.iter().map(|(_, x)| (*x, *x)).unzip();
        for i in 1..wanted.len() {
            right[i] = right[i].max(right[i - 1] + apart(wanted[i - 1].0, wanted[i].0));
        }
        for i in (1..wanted.len()).rev() {
            left[i - 1] = left[i - 1].min(left[i] - apart(wanted[i - 1].0, wanted[i].0));
        }
        for (i, (slot, _)) in wanted.iter().enumerate() {
            self.slots[*slot].x = (left[i] + right[i]) / 2.0;
        }
        self.layers[layer] = wanted.into_iter().map(|(slot, _)| slot).collect();
    }
}

impl Drawing<'_> {
    /// A box with its nodes, and the lines between them.
    fn card(&self, out: &mut String, card: &Card, [x, y]: [f64; 2]) {
        let (graph, width, height) = (self.fused.network.graph(), self.width(card), card.height());
        let (middle, network) = (x + width / 2.0, &self.fused.network);
        let _ = writeln!(out, "<g id=\"{}\"><title>{}</title>", card.id, escaped(&card.tip));
        let round = if card.class == "given" { 12 } else { 5 };
        let (class, size) = (card.class, format!("width=\"{width:.1}\" height=\"{height:.1}\""));
        let _ = writeln!(out, "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" {size} rx=\"{round}\"/>");
        let text = |out: &mut String, y: f64, class: &str, words: &str| {
            let words = escaped(&shown(words, LONGEST));
            let _ = writeln!(out, "<text class=\"{class}\" x=\"{middle:.1}\" y=\"{y:.1}\">{words}</text>");
        };
        for (line, words) in card.above.iter().enumerate() {
            text(out, y + (line as f64 + 0.9) * LINE, if line == 0 { "name" } else { "soft" }, words);
        }
        for (at, id) in card.nodes.iter().enumerate() {
            let node = graph.node(*id);
            let (top, words) = (y + card.top_of(at), self.operator(*id));
            let wide = (words.chars().count() + 2) as f64 * LETTER;
            let tip = escaped(&node_line(graph, node, |edge| Some(network.type_of(edge).to_string())));
            for edge in node.inputs.iter().flatten() {
                let Some(from) = graph.producer(*edge).and_then(|from| card.nodes.iter().position(|node| *node == from)) else {
                    continue;
                };
                let start = y + card.top_of(from) + LINE;
                let _ = if from + 1 == at {
                    writeln!(out, "<path class=\"inside\" d=\"M{middle:.1} {start:.1}V{top:.1}\"/>")
                } else {
                    // Around the nodes in between.
                    let side = x + 6.0;
                    writeln!(out, "<path class=\"inside\" d=\"M{middle:.1} {start:.1}H{side:.1}V{top:.1}H{middle:.1}\"/>")
                };
            }
            let _ = writeln!(out, "<g id=\"n{}\"><title>{tip}</title>", id.index());
            let (left, size) = (middle - wide / 2.0, format!("width=\"{wide:.1}\" height=\"{LINE:.1}\""));
            let _ = writeln!(out, "<rect class=\"operator\" x=\"{left:.1}\" y=\"{top:.1}\" {size} rx=\"3\"/>");
            text(out, top + 0.72 * LINE, "name", &words);
            out.push_str("</g>\n");
        }
        for (line, words) in card.below.iter().rev().enumerate() {
            text(out, y + height - (line as f64 + 0.3) * LINE, "soft", words);
        }
        out.push_str("</g>\n");
    }
}

impl Fused {
    /// The network as an SVG picture: the nodes as they were, in a box for each kernel, and lines for what passes through
    /// memory. Views have boxes of dashes. Pointing at a box shows what it computes.
    pub fn to_svg(&self) -> String {
        let drawing = Drawing::new(self);
        let Places { slots, layers, ways } = Places::new(&drawing);
        let edge = |sign: f64| slots.iter().map(|slot| sign * slot.x + slot.width / 2.0).reduce(f64::max).unwrap_or(0.0) + BESIDE;
        let (left, width) = (edge(-1.0), edge(-1.0) + edge(1.0));
        let heights = layers.iter().map(|layer| {
            let cards = layer.iter().filter_map(|slot| slots[*slot].card);
            cards.map(|card| drawing.cards[card].height()).fold(0.0, f64::max)
        });
        // The top and the bottom of each layer, of each place.
        let (mut ends, mut y) = (vec![[0.0; 2]; slots.len()], BESIDE);
        for (layer, height) in layers.iter().zip(heights) {
            layer.iter().for_each(|slot| ends[*slot] = [y, y + height]);
            y += height + BELOW;
        }
        let height = y - BELOW + BESIDE;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-label=\"the kernels of a network\">\n<style>\n{STYLE}</style>\n\
             <rect class=\"page\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n"
        );
        for way in &ways {
            let is_view = |slot: usize| slots[slot].card.is_some_and(|card| drawing.cards[card].class == "view");
            let (first, last) = (way[0], way[way.len() - 1]);
            let class = if is_view(first) || is_view(last) { "seen" } else { "memory" };
            let x = |slot: usize| left + slots[slot].x;
            let begin = slots[first].card.map_or(0.0, |card| drawing.cards[card].height());
            let mut path = format!("M{:.1} {:.1}", x(first), ends[first][0] + begin);
            for pair in way.windows(2) {
                let (from, to) = (x(pair[0]), x(pair[1]));
                let (start, end) = (ends[pair[0]][1], ends[pair[1]][0]);
                let middle = f64::midpoint(start, end);
                let _ = write!(path, "V{start:.1}C{from:.1} {middle:.1} {to:.1} {middle:.1} {to:.1} {end:.1}");
            }
            let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
            let (tip, end) = (x(last), ends[last][0]);
            let _ = writeln!(out, "<path class=\"tip\" d=\"M{tip:.1} {end:.1}l-4 -8h8z\"/>");
        }
        for slot in &slots {
            if let Some(card) = slot.card {
                drawing.card(&mut out, &drawing.cards[card], [left + slot.x - slot.width / 2.0, ends[card][0]]);
            }
        }
        out.push_str("</svg>\n");
        out
    }
}
