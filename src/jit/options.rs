//! Compile options besides the target.

use super::error::JitError;
use super::nvrtc::MINIMAL;
use crate::target::Target;

/// The caller's choices. The default is right for production; none of them changes the meaning of a kernel.
///
/// There is no switch for fast mathematics: the source spells every operation as exactly, or as fast, as intended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    line_info: bool,
    declarations: bool,
    ptxas: Vec<String>,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the source lines in the binary, for profilers.
    pub fn line_info(mut self, keep: bool) -> Self {
        self.line_info = keep;
        self
    }

    /// Keeps NVRTC's own declarations: textures, surfaces, and the types of CUDA's runtime, such as
    /// `cudaTextureObject_t`. Planned kernels do not use them. So by default NVRTC leaves them out, which saves some 5
    /// ms a kernel.
    pub fn declarations(mut self, keep: bool) -> Self {
        self.declarations = keep;
        self
    }

    /// Adds one option for the assembler, as in `--register-usage-level=10`.
    pub fn ptxas(mut self, option: impl Into<String>) -> Self {
        self.ptxas.push(option.into());
        self
    }

    /// The options for NVRTC, in order; `common` are the options of every compilation with this build.
    pub(super) fn flags(&self, target: Target, common: &[String]) -> Result<Vec<String>, JitError> {
        let mut flags = vec![
            format!("--gpu-architecture={target}"),
            "--std=c++17".to_owned(),
            // The source is the whole input. The current directory of the process does not matter.
            "--no-source-include".to_owned(),
            // The log then reports registers, stack and spills.
            "--ptxas-options=-v".to_owned(),
        ];
        let kept = common.iter().filter(|flag| !self.declarations || flag.as_bytes() != MINIMAL.to_bytes());
        flags.extend(kept.cloned());
        if self.line_info {
            flags.push("--generate-line-info".to_owned());
        }
        for option in &self.ptxas {
            let why = match option {
                option if !option.starts_with('-') => "an option of ptxas begins with a dash",
                option if option.contains(',') => "NVRTC takes one option of ptxas at a time, without commas",
                option if option.contains(['\0', '\n']) => "it contains a character that options do not have",
                _ => {
                    flags.push(format!("--ptxas-options={option}"));
                    continue;
                }
            };
            return Err(JitError::InvalidOption { option: option.clone(), why: why.to_owned() });
        }
        Ok(flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_fixed() {
        let options = Options::new().ptxas("-O2").ptxas("--register-usage-level=10").line_info(true);
        assert_eq!(
            options.flags(Target::SM_90A, &["--no-cache".to_owned()]).unwrap(),
            [
                "--gpu-architecture=sm_90a",
                "--std=c++17",
                "--no-source-include",
                "--ptxas-options=-v",
                "--no-cache",
                "--generate-line-info",
                "--ptxas-options=-O2",
                "--ptxas-options=--register-usage-level=10",
            ]
        );
    }

    #[test]
    fn declarations_are_kept_if_they_are_wanted() {
        let common = ["--no-cache", "--minimal"].map(str::to_owned);
        let has = |options: Options, flag: &str| options.flags(Target::SM_90A, &common).unwrap().contains(&flag.to_owned());
        let (usual, declared) = (Options::new(), Options::new().declarations(true));
        assert!(has(usual.clone(), "--minimal") && !has(declared.clone(), "--minimal"));
        assert!(has(usual, "--no-cache") && has(declared, "--no-cache"));
    }

    #[test]
    fn bad_options_are_named() {
        for bad in ["O2", "-O2,-v", "-\0", ""] {
            let error = Options::new().ptxas(bad).flags(Target::SM_80, &[]).unwrap_err();
            assert!(matches!(&error, JitError::InvalidOption { option, .. } if option == bad), "{error}");
        }
    }
}
