//! Kernels by other compilers than that of this process: where it has none, may not use it, need not load it, or made what the driver
//! refuses.

use super::*;

impl Cache {
    /// Whether kernels are to be had at all: the directory has some, of whatever compiler, or there is a compiler. Where
    /// compiling is denied NVRTC is not looked for, and what is missing is known when it is asked for.
    ///
    /// # Errors
    /// If the directory knows no compiler, and NVRTC is not found.
    pub fn usable(&self) -> Result<(), JitError> {
        let known = || self.disk.as_ref().is_ok_and(|store| !store.compilers().is_empty());
        // A mode that is none is told to whoever asks for a kernel, too.
        if self.fault.is_some() || self.config.mode == Mode::Deny || known() {
            return Ok(());
        }
        self.compiler.build().map(drop)
    }

    /// The binary of `source` by the compiler that is here, as far as a note tells without loading it.
    pub(super) fn without_loading(
        &self,
        source: &Source,
        target: Target,
        options: &Options,
    ) -> Result<Option<Arc<Cubin>>, JitError> {
        if self.build.get().is_some() {
            return Ok(None);
        }
        let Some(build) = self.recalled.get_or_init(|| self.recall()) else { return Ok(None) };
        let flags = options.flags(target, &build.common)?;
        let key = CacheKey::new(&build.identity, target, &flags, source);
        match self.obtain(&key, target, Disk::Only, || Err(JitError::Denied(self.denied(source, target, options)))) {
            Ok(found) => Ok(Some(found)),
            Err(Failure::Absent) => Ok(None),
            Err(Failure::Jit(error)) => Err(error),
        }
    }

    fn recall(&self) -> Option<Build> {
        let store = self.disk.as_ref().ok()?;
        let (library, damaged) = store.recall(&self.compiler.way()?);
        Counters::add(&self.counters.damaged, damaged.into());
        let build = library?.build;
        tracing::debug!(compiler = %build.identity, "the compiler is known without loading it");
        store.know_compiler(&build);
        Some(build)
    }

    /// Writes down which compiler is here, for processes that have none and for those that need not load it.
    pub(super) fn get_to_know(&self, build: &Build) {
        let Ok(store) = &self.disk else { return };
        if let Some(Some(recalled)) = self.recalled.get()
            && recalled != build
        {
            self.report(CacheFault::Mistaken, &recalled.identity, &format_args!("it is {}", build.identity));
        }
        store.know_compiler(build);
        if let Some(traced) = self.compiler.traced() {
            store.remember(&traced, build);
        }
    }

    /// The binary of `source` where NVRTC must not be used.
    pub(super) fn without_compiling(&self, source: &Source, target: Target, options: &Options) -> Result<Arc<Cubin>, JitError> {
        let found = self.by_any_compiler(source, target, options, None)?;
        found.ok_or_else(|| self.denied(source, target, options).into())
    }

    /// The binary of `source` where there is no NVRTC, if there is one.
    pub(super) fn without_compiler(
        &self,
        source: &Source,
        target: Target,
        options: &Options,
        missing: &dyn std::fmt::Display,
    ) -> Result<Option<Arc<Cubin>>, JitError> {
        let found = self.by_any_compiler(source, target, options, None)?;
        if let Some(cubin) = &found {
            self.report(CacheFault::NoCompiler, &format_args!("from {}", cubin.info.compiler), missing);
        }
        Ok(found)
    }

    /// Another binary for one that the driver refused to load.
    ///
    /// An image from disk may be stale in a way no checksum shows. This forgets it, compiles the kernel once more and keeps the
    /// result instead. Where nothing can be compiled, a kernel from an older compiler in the directory may do. `None` if `refused`
    /// was compiled by this very process, since compiling again gives the same bytes, or if compiling is denied and there is no
    /// other: then the driver's word stands.
    ///
    /// # Errors
    /// As for [`Cache::compile`].
    pub fn replace(
        &self,
        refused: &Cubin,
        source: &Source,
        target: &Target,
        options: &Options,
    ) -> Result<Option<Arc<Cubin>>, JitError> {
        if self.config.mode == Mode::Deny {
            return self.older(refused, source, *target, options);
        }
        let job = match self.job(source, *target, options) {
            Err(JitError::NotFound(missing)) => {
                let older = self.older(refused, source, *target, options)?;
                return older.map(Some).ok_or_else(|| missing.into());
            }
            job => job?,
        };
        self.replace_with(refused, &job.key, job.target, || self.run(&job))
    }

    pub(super) fn replace_with(
        &self,
        refused: &Cubin,
        key: &CacheKey,
        target: Target,
        run: impl FnOnce() -> Result<Cubin, JitError>,
    ) -> Result<Option<Arc<Cubin>>, JitError> {
        if refused.info.compile_ms.is_some() {
            return Ok(None);
        }
        self.report(CacheFault::Refused, key, &format_args!("from {}", refused.info.compiler));
        // If someone else has replaced it already, theirs is taken. The file goes first, or a third would read it back.
        self.flights.forget_if(key, |held| {
            let stale = held.bytes == refused.bytes;
            if let (true, Ok(store)) = (stale, &self.disk) {
                store.remove(key, target);
            }
            stale
        });
        self.memos.forget_all();
        match self.obtain(key, target, Disk::Overwrite, run) {
            Ok(cubin) => Ok(Some(cubin)),
            Err(Failure::Jit(error)) => Err(error),
            Err(Failure::Absent) => Ok(None),
        }
    }

    /// A kernel from an older compiler than that of one which the driver refused.
    fn older(&self, refused: &Cubin, source: &Source, target: Target, options: &Options) -> Result<Option<Arc<Cubin>>, JitError> {
        let newer = &refused.info.compiler;
        let found = self.by_any_compiler(source, target, options, Some(newer))?;
        if let Some(cubin) = &found {
            // Not to be tried again, each time somebody asks.
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(refused.info.key.clone());
            self.memos.forget_all();
            self.report(CacheFault::Older, &format_args!("from {}", cubin.info.compiler), &format_args!("not from {newer}"));
        }
        Ok(found)
    }

    /// The binary of `source` by any compiler whose kernels are in the directory; only by those older than one, if one is given.
    fn by_any_compiler(
        &self,
        source: &Source,
        target: Target,
        options: &Options,
        than: Option<&str>,
    ) -> Result<Option<Arc<Cubin>>, JitError> {
        let look = |builds: &[Build]| {
            let newer = than.and_then(|than| builds.iter().position(|build| build.identity == than)).map_or(0, |at| at + 1);
            for build in &builds[newer..] {
                let flags = options.flags(target, &build.common)?;
                let key = CacheKey::new(&build.identity, target, &flags, source);
                if self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&key.to_string()) {
                    continue;
                }
                match self.obtain(&key, target, Disk::Only, || Err(JitError::Denied(self.denied(source, target, options)))) {
                    Ok(found) => return Ok(Some(found)),
                    Err(Failure::Absent) => {}
                    Err(Failure::Jit(error)) => return Err(error),
                }
            }
            Ok(None)
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(found) = look(&known)? {
            return Ok(Some(found));
        }
        // The directory may have been filled since.
        let now: Arc<[Build]> = self.disk.as_ref().map_or_else(|_| Vec::new(), Store::compilers).into();
        let found = if now == known { None } else { look(&now)? };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = now;
        if found.is_none() && than.is_none() {
            self.counters.missed(&source.entry());
        }
        Ok(found)
    }

    fn denied(&self, source: &Source, target: Target, options: &Options) -> Denied {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let keys = known.iter().filter_map(|build| {
            let flags = options.flags(target, &build.common).ok()?;
            Some((build.identity.clone(), CacheKey::new(&build.identity, target, &flags, source).to_string()))
        });
        let directory = self.directory().map_or_else(str::to_owned, |root| root.display().to_string());
        Denied { entry: source.entry().to_owned(), target, directory, keys: keys.collect(), asked: None }
    }
}
