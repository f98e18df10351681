//! Disks that are full, damaged, or of another user.

use super::*;

fn open(root: &Path) -> Cache {
    Cache::at(root).compiling_with(compiler("C 1"))
}

#[test]
fn whatever_befalls_an_entry_it_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    for text in ["text", "other"] {
        compile(&open(&root), text).unwrap();
    }
    let cache = open(&root);
    let name = |text: &str| format!("{}.kernel", cache.key(&Source::new(text, "k"), &SM, &Options::new()).unwrap());
    let path = files(&root, &name("text")).remove(0);
    let other = files(&root, &name("other")).remove(0);
    let whole = fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    let mut newer = whole.clone();
    newer[8..12].copy_from_slice(&2u32.to_le_bytes());
    let damages = [
        ("empty", Vec::new()),
        ("cut", whole[..whole.len() - 1].to_vec()),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("longer", [&whole[..], b"x"].concat()),
        ("magic", flipped(0)),
        ("key", flipped(20)),
        ("image", flipped(whole.len() - 5000)),
        ("check", flipped(whole.len() - 1)),
        ("renamed", fs::read(&other).unwrap()),
        ("of another format", newer),
        ("text", b"a kernel\n".repeat(100)),
    ];
    for (what, bytes) in damages {
        fs::write(&path, bytes).unwrap();
        let cache = open(&root);
        assert_eq!(origin(&cache, "text"), Origin::Compiled, "{what}");
        assert_eq!(cache.stats().damaged, 1, "{what}");
        assert_eq!(origin(&open(&root), "text"), Origin::Disk, "{what}");
    }
}

#[test]
fn a_folder_in_the_place_of_a_kernel_costs_one_compilation() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    compile(&open(&root), "text").unwrap();
    let path = files(&root, ".kernel").remove(0);
    for theirs in [false, true] {
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        if theirs {
            fs::write(path.join("theirs"), "x").unwrap();
        }
        let (cache, heard) = warnings(|| {
            let cache = open(&root);
            assert_eq!(origin(&cache, "text"), Origin::Compiled);
            cache
        });
        assert!(heard.iter().any(|said| said.contains("a folder lay in the place of a cached file")), "{heard:#?}");
        assert_eq!(cache.stats().unsaved, 0);
        let (_, heard) = warnings(|| assert_eq!(origin(&open(&root), "text"), Origin::Disk));
        assert_eq!(heard, Vec::<String>::new());
        assert_eq!(files(&root, "theirs").len(), usize::from(theirs), "what is somebody's is kept");
    }
}

#[test]
fn every_degradation_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let cache = open(&root);
    compile(&cache, "first").unwrap();
    // Nothing can be written any more, neither kernels nor locks nor the mark of a sweep: a file stands in the place of
    // the folders.
    fs::remove_dir_all(root.join("v1")).unwrap();
    fs::write(root.join("v1"), "").unwrap();
    let (_, heard) = warnings(|| (0..5).for_each(|index| drop(compile(&cache, &format!("text {index}")).unwrap())));
    assert_eq!(heard.len(), 3, "{heard:#?}");
    assert!(heard.iter().all(|said| said.contains("further cases are debug events")), "{heard:?}");
    assert_eq!((cache.stats().compiles, cache.stats().unsaved), (6, 5));

    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let (cache, heard) = warnings(|| open(&file));
    assert!(heard.len() == 1 && heard[0].contains("in memory only"), "{heard:#?}");
    let (_, heard) = warnings(|| (0..5).for_each(|_| drop(compile(&cache, "text").unwrap())));
    assert_eq!(heard, Vec::<String>::new());
}

#[test]
fn an_unusable_lock_is_no_obstacle() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    fs::create_dir_all(root.join("v1")).unwrap();
    fs::write(root.join("v1/locks"), "").unwrap();
    let cache = open(&root);
    assert_eq!(origin(&cache, "text"), Origin::Compiled);
    assert_eq!(origin(&open(&root), "text"), Origin::Disk);
}

#[test]
fn two_versions_live_side_by_side() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    compile(&open(&root), "text").unwrap();
    // The layout of a later version, with files of the same names.
    let kernel = files(&root, ".kernel").remove(0);
    let later = root.join("v2").join(kernel.strip_prefix(root.join("v1")).unwrap());
    fs::create_dir_all(later.parent().unwrap()).unwrap();
    fs::write(&later, "a later format").unwrap();
    assert_eq!(origin(&open(&root), "text"), Origin::Disk);
    open(&root).clear();
    assert_eq!(origin(&open(&root), "text"), Origin::Compiled);
    assert_eq!(fs::read(&later).unwrap(), b"a later format");
}
