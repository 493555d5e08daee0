//! What the loop waits for. A source that is not there, or has ended, never has anything: it stops no other.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::app::terminal::Screen;
use crate::boot::Found;
use crate::sample::Sample;
use crate::source::processes::ProcessTable;
use crate::source::readers::{AllocatorsRead, Readers};
use crate::worker::{Outcome, Worker};

/// The newest process table, as the sampler publishes it.
pub(super) type Tables = watch::Receiver<Option<Arc<ProcessTable>>>;

/// Resolves when the next frame is due and the terminal has taken the one before.
pub(super) async fn drawable(screen: &Screen, due: Instant) {
    sleep_until(due).await;
    screen.written().await;
}

/// What the allocator's thread did next.
pub(super) async fn next_outcome(worker: Option<&mut Worker>) -> Outcome {
    match worker {
        Some(worker) => match worker.outcomes.recv().await {
            Some(outcome) => outcome,
            None => pending().await,
        },
        None => pending().await,
    }
}

/// The next sample.
pub(super) async fn next_sample(samples: Option<&mut mpsc::Receiver<Sample>>) -> Sample {
    match samples {
        Some(samples) => match samples.recv().await {
            Some(sample) => sample,
            None => pending().await,
        },
        None => pending().await,
    }
}

/// The next process table.
pub(super) async fn next_table(tables: Option<&mut Tables>) -> Arc<ProcessTable> {
    let Some(tables) = tables else { return pending().await };
    loop {
        if tables.changed().await.is_err() {
            return pending().await;
        }
        if let Some(table) = tables.borrow_and_update().clone() {
            return table;
        }
    }
}

/// The table's allocators, once the round that runs is through.
pub(super) async fn next_read(
    reading: Option<&mut JoinHandle<(Readers, AllocatorsRead)>>,
) -> Option<(Readers, AllocatorsRead)> {
    match reading {
        // A thread that panicked has ended the program already.
        Some(handle) => handle.await.ok(),
        None => pending().await,
    }
}

/// What was found at the start.
pub(super) async fn booted(booting: Option<&mut JoinHandle<Result<Found, String>>>) -> Result<Found, String> {
    match booting {
        Some(handle) => match handle.await {
            Ok(found) => found,
            Err(error) => Err(format!("looking for devices failed: {error}")),
        },
        None => pending().await,
    }
}
