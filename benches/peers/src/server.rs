//! A server that counts, with a thread of its own, so that its work is not the client's.

use reqwest::Url;
use tokio::runtime::Runtime;

use crate::wire::{Reply, Wire};

pub(crate) struct Server {
    wire: Wire,
    // It serves for as long as this lives.
    _runtime: Runtime,
}

impl Server {
    /// `script` gets the number of the request, counted over all connections from 0.
    pub(crate) fn new(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        Self {
            wire: runtime.block_on(Wire::serve(script)),
            _runtime: runtime,
        }
    }

    pub(crate) fn url(&self) -> Url {
        self.wire.url("/").parse().expect("a URL")
    }

    pub(crate) fn connections(&self) -> usize {
        self.wire.connections()
    }

    pub(crate) fn requests(&self) -> usize {
        self.wire.count()
    }
}
