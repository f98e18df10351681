//! Norms of channels: images are the batch of a kernel. Where channels lie side by side, pixels are its rows and channels its
//! columns, and groups of channels are bands of columns. Where channels lie in planes, it is the other way round.

use super::group::{Group, GroupKind, Grouper};
use super::view::channels_last;
use crate::network::graph::{Node, NodeId};

/// The channels of a group of a norm of channels over a tensor of this shape, if groups divide them.
pub(super) fn group_of_channels(node: &Node, shape: &[usize]) -> Option<usize> {
    let channels = *shape.get(1)?;
    let groups = match node.operator_name() {
        "InstanceNormalization" => channels,
        _ => usize::try_from(node.attributes.int_or("num_groups", 0)).ok()?,
    };
    (groups > 0 && channels.is_multiple_of(groups)).then(|| channels / groups)
}

impl Grouper<'_> {
    /// A function of the channels of images joins what computes its elements one by one, or begins a kernel.
    pub fn images(&mut self, id: NodeId, node: &Node, shape: &[usize]) {
        for (group, edge) in self.sources(node) {
            let Group { kind, shape: own, order, .. } = &self.groups[group];
            let lies = order.is_sorted() || *order == channels_last(shape.len());
            let obstacle = match kind {
                GroupKind::Pointwise | GroupKind::Images if *own == shape && lies => self.obstacle(group, node),
                GroupKind::Product => Some("what all of an image comes to lies in several tiles of a product"),
                _ => Some("its reader computes another shape"),
            };
            match obstacle {
                Some(why) => drop(self.reasons.insert((edge, id), why)),
                None => {
                    self.groups[group].kind = GroupKind::Images;
                    self.join(group, id, node);
                    self.absorb(group);
                    return;
                }
            }
        }
        let order = self.order_of(node, shape);
        self.begin(id, node, GroupKind::Images, shape, order);
    }
}
