//! What a launch adds to a plan: the problem, the parameter block, tensor maps, the order of tiles, copies of operands.

pub(super) mod attention;
pub(super) mod maps;
pub(super) mod params;
pub(super) mod problem;
pub(super) mod raster;
pub(super) mod repack;
