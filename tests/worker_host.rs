//! Host memory is real: RSS rises when a block is made and falls when it is dropped (AC-29). Alone in its process, since
//! RSS belongs to the whole process.

use alloctop::source::host::HostSource;
use alloctop::units::{Bytes, MIB};
use alloctop::worker::host::{HostBlock, MAPPED_FROM};

fn rss() -> i64 {
    let source = HostSource::new("/proc");
    source
        .rss(std::process::id())
        .value()
        .map(|Bytes(b)| *b as i64)
        .unwrap()
}

#[test]
fn large_blocks_leave_the_process_at_once_whatever_was_freed_before() {
    let page = procfs::page_size();
    // Freeing blocks of the C library's moves its threshold up to 32 MiB; ours must not follow it.
    for size in [MIB, 4 * MIB, 24 * MIB] {
        drop(vec![1u8; size as usize]);
    }
    for size in [MAPPED_FROM, MIB, 24 * MIB, 100 * MIB] {
        let before = rss();
        let block = HostBlock::zeros(size, page).unwrap();
        let with = rss();
        assert!(matches!(block, HostBlock::Mapped(_)));
        drop(block);
        let after = rss();
        // The kernel counts RSS in batches per thread (AC-28).
        let slack = MIB as i64;
        assert!(
            (with - before - size as i64).abs() <= slack,
            "{size}: rose by {}",
            with - before
        );
        assert!((after - before).abs() <= slack, "{size}: {} stayed", after - before);
    }
}
