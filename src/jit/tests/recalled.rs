//! Compilers that are known without being loaded: no kernel is wrong, whatever a note says.

use super::super::{Config, Holds, Mode, NVRTC_PATH};
use super::children::{beside, child, report};
use super::*;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

/// A scratch folder with a library, and the cache's directory in it.
struct Scene {
    directory: tempfile::TempDir,
    library: PathBuf,
    root: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let (library, root) = (directory.path().join("library"), directory.path().join("cache"));
        fs::write(&library, "library 1").unwrap();
        Scene { directory, library, root }
    }

    /// The view of a process that finds this compiler in the library.
    fn open(&self, identity: &'static str, mode: Mode) -> (Cache, Arc<StandIn>) {
        let stand_in = Arc::new(StandIn { identity, library: Some(self.library.clone()), ..StandIn::default() });
        (Cache::open(&self.root, Config::new().mode(mode)).compiling_with(stand_in.clone()), stand_in)
    }

    /// The origin of such a process's kernel, its compiler, and the number of requests for the compiler's identity.
    fn find(&self, identity: &'static str, mode: Mode, text: &str) -> (Origin, String, u64) {
        let (cache, stand_in) = self.open(identity, mode);
        let cubin = compile(&cache, text).unwrap();
        (cubin.info.origin, cubin.info.compiler.clone(), stand_in.asked.load(SeqCst))
    }

    /// A kernel by this compiler, and the note of it.
    fn filled(identity: &'static str) -> (Scene, PathBuf) {
        let scene = Scene::new();
        assert_eq!(scene.find(identity, Mode::ReadWrite, "text"), (Origin::Compiled, identity.to_owned(), 1));
        let note = scene.note();
        (scene, note)
    }

    fn note(&self) -> PathBuf {
        let notes = files(&self.root.join("v1/libraries"), ".note");
        assert_eq!(notes.len(), 1, "{notes:?}");
        notes[0].clone()
    }

    /// Makes the note name another compiler for the present library.
    fn forge(&self, identity: &'static str) {
        let (cache, stand_in) = self.open(identity, Mode::ReadWrite);
        cache.store().unwrap().remember(&stand_in.traced().unwrap(), &stand_in.build().unwrap());
    }
}

fn disk(identity: &str, asked: u64) -> (Origin, String, u64) {
    (Origin::Disk, identity.to_owned(), asked)
}

fn compiled(identity: &str, asked: u64) -> (Origin, String, u64) {
    (Origin::Compiled, identity.to_owned(), asked)
}

#[test]
fn a_kernel_from_disk_needs_no_compiler_to_be_asked() {
    let (scene, note) = Scene::filled("C 1");
    for mode in [Mode::ReadWrite, Mode::ReadOnly, Mode::Deny] {
        assert_eq!(scene.find("C 1", mode, "text"), disk("C 1", 0), "{mode}");
    }
    let (cache, stand_in) = scene.open("C 1", Mode::ReadWrite);
    let told = fs::read(&note).unwrap();
    let (origins, heard) = warnings(|| ["text", "text", "new", "text", "new"].map(|text| origin(&cache, text)));
    assert_eq!(origins, [Origin::Disk, Origin::Memory, Origin::Compiled, Origin::Memory, Origin::Memory]);
    assert_eq!((stand_in.asked.load(SeqCst), heard), (1, Vec::new()), "only to compile");
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.compiles, stats.disk_hits, stats.memory_hits), (1, 1, 1, 3));
    assert_eq!(fs::read(&note).unwrap(), told);
    assert_eq!(scene.find("C 1", Mode::Off, "text"), compiled("C 1", 1), "there is no note without a directory");
}

#[test]
fn a_library_that_was_replaced_is_asked_again() {
    let (scene, _) = Scene::filled("C 1");
    // Another of the same name, size and time.
    let (other, time) = (scene.directory.path().join("other"), fs::metadata(&scene.library).unwrap().modified().unwrap());
    fs::write(&other, "library 2").unwrap();
    File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
    fs::rename(&other, &scene.library).unwrap();
    assert_eq!(scene.find("C 2", Mode::ReadOnly, "text"), compiled("C 2", 1), "nothing of it is kept");
    assert_eq!(scene.find("C 2", Mode::ReadWrite, "text"), compiled("C 2", 1));
    assert_eq!(scene.find("C 2", Mode::ReadWrite, "text"), disk("C 2", 0));
    // The same place, written over.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&scene.library, "library 3").unwrap();
    assert_eq!(scene.find("C 3", Mode::ReadWrite, "text"), compiled("C 3", 1));
    fs::remove_file(&scene.library).unwrap();
    assert_eq!(scene.find("C 3", Mode::ReadWrite, "text"), disk("C 3", 1));
}

#[test]
fn nothing_is_compiled_under_the_name_that_a_forged_note_gives() {
    let (scene, note) = Scene::filled("C 1");
    scene.forge("C 22");
    let (found, heard) = warnings(|| scene.find("C 1", Mode::ReadWrite, "new"));
    assert_eq!(found, compiled("C 1", 1));
    assert!(heard.len() == 1 && heard[0].contains("C 22") && heard[0].contains("it is C 1"), "{heard:?}");
    let told = String::from_utf8_lossy(&fs::read(&note).unwrap()).into_owned();
    assert!(told.contains("C 1") && !told.contains("C 22"), "{told}");
    for text in ["text", "new"] {
        assert_eq!(scene.find("C 1", Mode::ReadWrite, text), disk("C 1", 0));
    }
    // A note that cannot be corrected costs the time that it saves.
    scene.forge("C 22");
    for _ in 0..2 {
        assert_eq!(scene.find("C 1", Mode::ReadOnly, "text"), disk("C 1", 1));
    }
    // A kernel under that name comes from the same source, and is verified.
    let elsewhere = Cache::at(&scene.root).compiling_with(compiler("C 22"));
    compile(&elsewhere, "text").unwrap();
    assert_eq!(scene.find("C 1", Mode::ReadOnly, "text"), disk("C 22", 0));
}

#[test]
fn a_damaged_note_costs_a_question() {
    let (scene, note) = Scene::filled("C 1");
    let whole = fs::read(&note).unwrap();
    let mut flipped = whole.clone();
    flipped[60] ^= 1;
    let key: [u8; 32] = whole[12..44].try_into().unwrap();
    let empty = super::super::note::encode(&CacheKey::from_bytes(key), b"{}");
    let foreign = super::super::note::encode(&CacheKey::for_test(1), &whole[44..whole.len() - 32]);
    for bytes in [Vec::new(), whole[..whole.len() / 2].to_vec(), flipped, empty, foreign, b"text".repeat(50)] {
        fs::write(&note, &bytes).unwrap();
        let (cache, stand_in) = scene.open("C 1", Mode::ReadWrite);
        let (found, heard) = warnings(|| origin(&cache, "text"));
        assert_eq!((found, stand_in.asked.load(SeqCst), cache.stats().damaged), (Origin::Disk, 1, 1));
        assert!(heard.len() == 1 && heard[0].contains("damaged"), "{heard:?}");
        assert_eq!(scene.find("C 1", Mode::ReadWrite, "text"), disk("C 1", 0), "it is written anew");
        assert_eq!(fs::read(&note).unwrap(), whole);
    }
}

#[test]
fn a_note_that_others_may_have_written_is_not_read() {
    type Spoil = fn(&Path);
    let spoil: [(&str, Spoil); 4] = [
        ("others write to it", |note| fs::set_permissions(note, fs::Permissions::from_mode(0o666)).unwrap()),
        ("others write to its folder", |note| {
            fs::set_permissions(note.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        }),
        ("it is a link", |note| {
            let moved = note.ancestors().nth(4).unwrap().with_extension("moved");
            fs::rename(note, &moved).unwrap();
            symlink(&moved, note).unwrap();
        }),
        ("it is somebody else's", |note| match chown(note, Some(12_345), None) {
            Ok(()) => {}
            // Practically: only the superuser gives files away.
            Err(_) => fs::remove_file(note).unwrap(),
        }),
    ];
    for (what, spoil) in spoil {
        let (scene, note) = Scene::filled("C 1");
        scene.forge("C 22");
        compile(&Cache::at(&scene.root).compiling_with(compiler("C 22")), "text").unwrap();
        spoil(&note);
        for mode in [Mode::ReadOnly, Mode::ReadWrite] {
            assert_eq!(scene.find("C 1", mode, "text"), disk("C 1", 1), "{what}");
        }
        fs::set_permissions(note.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        scene.find("C 1", Mode::ReadWrite, "new");
        assert_eq!(scene.find("C 1", Mode::ReadWrite, "text"), disk("C 1", 0), "{what}: it is made again");
    }
}

#[test]
fn denying_looks_at_no_note() {
    let (scene, _) = Scene::filled("C 1");
    scene.forge("C 22");
    assert_eq!(scene.find("C 1", Mode::Deny, "text"), disk("C 1", 0));
    let (cache, stand_in) = scene.open("C 1", Mode::Deny);
    assert!(matches!(compile(&cache, "new"), Err(JitError::Denied(_))));
    assert_eq!(stand_in.asked.load(SeqCst), 0);
}

#[test]
fn what_is_true_of_this_machine_only_is_not_exported() {
    let (scene, note) = Scene::filled("C 1");
    let (cache, _) = scene.open("C 1", Mode::ReadWrite);
    let held = cache.files().into_iter().find(|file| file.path == note).expect("the note is listed").holds;
    assert!(matches!(&held, Ok(Holds::Library(identity)) if identity == "C 1"), "{held:?}");
    let bundle = scene.directory.path().join("bundle");
    let out = cache.export(&bundle).unwrap();
    assert_eq!((out.kernels, out.notes, out.compilers, out.damaged), (1, 0, 1, 0));
    let there = Scene::new();
    assert_eq!(there.open("C 1", Mode::ReadWrite).0.import(&bundle).unwrap(), out);
    assert!(files(&there.root.join("v1/libraries"), ".note").is_empty());
    for asked in [1, 0] {
        assert_eq!(there.find("C 1", Mode::ReadWrite, "text"), disk("C 1", asked));
    }
    // It is removed with the rest.
    assert_eq!(cache.clear().removed, 2, "a kernel and the note");
}

#[test]
fn processes_that_start_together_write_one_note() {
    let scene = Scene::new();
    compile(&Cache::at(&scene.root).compiling_with(compiler("C 1")), "text").unwrap();
    fs::write(beside(&scene.root, "library"), "library").unwrap();
    let race = |round: &str| {
        let _ = fs::remove_file(beside(&scene.root, "start"));
        let children: Vec<_> = (0..8).map(|_| child("recall", &scene.root).spawn().unwrap()).collect();
        let names: Vec<_> = children.iter().map(|child| beside(&scene.root, &format!("ready-{}", child.id()))).collect();
        while !names.iter().all(|name| name.exists()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        File::create(beside(&scene.root, "start")).unwrap();
        let said: Vec<_> = children.into_iter().map(report).collect();
        assert!(
            said.iter().all(|said| said.ends_with("warnings=0") && said.contains(&Origin::Disk.to_string())),
            "{round}: {said:?}"
        );
        said
    };
    race("first");
    scene.note();
    assert!(race("second").iter().all(|said| said.contains("asked=0")));
}

#[test]
fn a_library_that_cannot_be_loaded_is_not_missed() {
    let scene = Scene::new();
    let run = |role: &str| report(child(role, &scene.root).env(NVRTC_PATH, &scene.library).spawn().unwrap());
    let key = run("plant");
    assert_eq!(run("look up"), format!("{} {key} warnings=0", Origin::Disk));
    // A changed library has to be loaded, and cannot: the kernel is taken as on a machine without a compiler.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&scene.library, "library 2").unwrap();
    assert_eq!(run("look up"), format!("{} {key} warnings=1", Origin::Disk));
    fs::remove_dir_all(scene.root.join("v1/compilers")).unwrap();
    assert!(run("look up").contains("not an ELF library"));
}
