//! Calibrations as a document: a network's tensors under their names.

use super::{Calibration, CalibrationError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The calibrations of a network: for each tensor one, or one for each channel.
///
/// ```
/// use postlude::calibrate::{Calibrations, Histogram, Method};
/// use postlude::prelude::*;
/// let x = Histogram::of(&[0.5f32, -2.0, 1.0], Histogram::BINS)?.calibrate(Method::Max, I8)?;
/// let mut network = Calibrations::default();
/// network.tensors.insert("x".into(), vec![x]);
/// assert_eq!(Calibrations::from_json(&network.to_json())?, network);
/// # Ok::<(), postlude::calibrate::CalibrationError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Calibrations {
    /// Under each name the calibration of the tensor, or those of its channels in order.
    pub tensors: BTreeMap<String, Vec<Calibration>>,
}

impl Calibrations {
    /// The scales of a tensor: one, or one for each channel. An unknown tensor has none.
    pub fn scales(&self, name: &str) -> Vec<f32> {
        self.tensors.get(name).into_iter().flatten().map(|calibration| calibration.scale).collect()
    }

    /// All of it as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Reads what [`to_json`](Calibrations::to_json) wrote.
    ///
    /// # Errors
    /// If it is something else, or a scale is not a positive number.
    pub fn from_json(json: &str) -> Result<Calibrations, CalibrationError> {
        let read: Calibrations = serde_json::from_str(json)?;
        for (name, channels) in &read.tensors {
            for calibration in channels {
                super::largest(calibration.format)?;
                let (scale, threshold) = (calibration.scale, calibration.threshold);
                let number = |what, got: f32| CalibrationError::Number { name: name.clone(), what, got: f64::from(got) };
                if !(scale > 0.0 && scale.is_finite()) {
                    return Err(number("scale", scale));
                }
                if !(threshold >= 0.0 && threshold.is_finite()) {
                    return Err(number("threshold", threshold));
                }
            }
        }
        Ok(read)
    }
}
