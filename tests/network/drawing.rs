//! Drawings of fused networks: well-formed XML with every node and every kernel, and no box over another.

use crate::encoder_block;
use crate::graphs::{encoder, mlp};
use crate::networks::{Images, mobilenet_v2, resnet, unet, vgg16};
use postlude::network::{Attributes, Network};
use postlude::prelude::*;
use std::collections::HashMap;
use std::path::Path;

/// An element's name and attributes.
type Element = (String, HashMap<String, String>);

/// The elements of a document. Panics if it is not XML as drawings use it.
fn parsed(xml: &str) -> Vec<Element> {
    let (mut open, mut elements): (Vec<String>, Vec<Element>) = (Vec::new(), Vec::new());
    let mut rest = xml.trim_end();
    while !rest.is_empty() {
        let Some(tag) = rest.strip_prefix('<') else {
            let (text, behind) = rest.split_at(rest.find('<').expect("text stands in an element"));
            assert!(!open.is_empty() && !text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
            for entity in text.split('&').skip(1) {
                assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)), "&{entity}");
            }
            rest = behind;
            continue;
        };
        let (tag, behind) = tag.split_once('>').expect("a tag ends");
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut written) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = HashMap::new();
        while let Some((key, value)) = written.trim_start().split_once("=\"") {
            let (value, further) = value.split_once('"').expect("an attribute ends");
            assert!(!value.contains('<'));
            assert!(attributes.insert(key.to_owned(), value.to_owned()).is_none(), "{key} twice");
            written = further;
        }
        assert_eq!(written.trim(), "");
        elements.push((name.to_owned(), attributes));
        if !closed {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty(), "{open:?}");
    elements
}

/// Draws a network, and holds the drawing to it.
fn draws(network: &Network) -> String {
    let fused = network.fuse().unwrap();
    let svg = fused.to_svg();
    let elements = parsed(&svg);
    let ids = |kind: char| {
        let of = |(_, attributes): &Element| attributes.get("id").cloned();
        let mut ids: Vec<usize> = elements.iter().filter_map(of).filter_map(|id| id.strip_prefix(kind)?.parse().ok()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids('n'), (0..fused.network().graph().nodes().count()).collect::<Vec<_>>());
    assert_eq!(ids('k'), (0..fused.steps().len()).collect::<Vec<_>>());
    assert_eq!(ids('e').len(), network.inputs().count());
    assert_eq!(ids('o').len(), network.outputs().count());
    // Boxes, without those of the nodes in them.
    let boxes = elements.iter().filter(|(name, attributes)| {
        name == "rect" && attributes.get("class").is_some_and(|class| class != "operator" && class != "page")
    });
    let extents = |(_, a): &Element| ["x", "y", "width", "height"].map(|key| a[key].parse::<f64>().unwrap());
    let boxes: Vec<[f64; 4]> = boxes.map(extents).collect();
    for (i, [x, y, width, height]) in boxes.iter().enumerate() {
        assert!(*x >= 0.0 && *y >= 0.0);
        let over = |[u, v, w, h]: &[f64; 4]| u < &(x + width) && x < &(u + w) && v < &(y + height) && y < &(v + h);
        assert!(!boxes[..i].iter().any(over), "box {i} lies over another");
    }
    // The page has a margin, and nothing but that below the boxes. Lines may lie beside them.
    let of_class = |class: &str| -> Vec<&Element> {
        elements.iter().filter(|(name, a)| name == "rect" && a.get("class").is_some_and(|own| own == class)).collect()
    };
    let page = ["width", "height"].map(|key| of_class("page")[0].1[key].parse::<f64>().unwrap());
    for (at, extent) in page.into_iter().enumerate() {
        let first = boxes.iter().map(|part| part[at]).fold(f64::INFINITY, f64::min);
        let last = boxes.iter().map(|part| part[at] + part[at + 2]).fold(0.0, f64::max);
        let (before, behind) = (first, extent - last);
        assert!(before >= 20.0 && behind >= 20.0, "{first} to {last} of {extent}");
        assert!(at == 0 || (before - behind).abs() <= 1.0, "{first} to {last} of {extent}");
    }
    // Each node lies in one box, in the middle, and over no other node.
    let nodes: Vec<[f64; 4]> = of_class("operator").into_iter().map(extents).collect();
    for (i, [x, y, width, height]) in nodes.iter().enumerate() {
        let holds = |[u, v, w, h]: &&[f64; 4]| {
            (u + w / 2.0 - x - width / 2.0).abs() < 0.2 && v < y && y + height < v + h && *width <= w + 0.1
        };
        assert_eq!(boxes.iter().filter(holds).count(), 1, "node {i} of {}", nodes.len());
        let over = |[u, v, w, h]: &[f64; 4]| u < &(x + width) && x < &(u + w) && v < &(y + height) && y < &(v + h);
        assert!(!nodes[..i].iter().any(over), "node {i} lies over another");
    }
    // Words lie in the box of what they name, below its upper edge.
    for (_, a) in elements.iter().filter(|(name, a)| name == "text" && a.get("class").is_some_and(|c| c == "name" || c == "soft"))
    {
        let [x, y] = ["x", "y"].map(|key| a[key].parse::<f64>().unwrap());
        let holds = |[u, v, w, h]: &&[f64; 4]| u < &x && x < u + w && v + 4.0 < y && y < v + h;
        assert_eq!(boxes.iter().filter(holds).count(), 1, "words at {x}, {y}");
    }
    svg
}

const SMALL: Images = Images { format: F32, batch: 1, size: 32, narrow: 16, channels_last: false };

#[test]
fn every_network_has_a_drawing() {
    draws(&encoder(F32, 1, 6, 2, 4));
    draws(&encoder(F32, 3, 6, 2, 4));
    draws(&mlp(F32, 4, [8, 8, 8, 4]));
    draws(&mlp(F32, 4, [8, 8, 8, 4]).backward("loss", &["w1", "b1", "w2"]).unwrap());
    draws(&resnet(SMALL, [2, 2, 2, 2], false, 10).unwrap());
    draws(&resnet(SMALL, [3, 4, 6, 3], true, 10).unwrap());
    draws(&vgg16(SMALL, 10).unwrap());
    draws(&mobilenet_v2(SMALL, 10).unwrap());
    draws(&unet(SMALL, 2).unwrap());
    // Nothing is computed.
    draws(&Network::build(|g| g.output("y", g.input("x", F32, (2, 2)))).unwrap());
}

#[test]
fn names_are_escaped_and_nodes_without_a_kernel_are_drawn() {
    let network = Network::build(|g| {
        let x = g.input("<x> & \"y\"", F32, (1, 2, 5, 5));
        let y = g.apply("LpPool", &[x], Attributes::new().with("kernel_shape", vec![2, 2]));
        g.output("</svg>", y.relu());
    })
    .unwrap();
    let svg = draws(&network);
    for part in ["input &lt;x&gt; &amp; &quot;y&quot;", "output &lt;/svg&gt;", "on the CPU 0", "class=\"cpu\"", "LpPool", "Relu"]
    {
        assert!(svg.contains(part), "{part} is not in\n{svg}");
    }
}

/// The picture in the documents has each box, line and word where it is drawn. `BLESS=1` draws it again.
#[test]
fn the_picture_in_the_documents_is_what_is_drawn() {
    let svg = encoder_block::encoder().unwrap().fuse().unwrap().to_svg();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/encoder_block.svg");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &svg).unwrap();
    }
    assert!(std::fs::read_to_string(&path).unwrap().replace("\r\n", "\n") == svg, "{} shows another drawing", path.display());
}
