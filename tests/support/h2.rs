//! An HTTP/2 server made of raw frames, so that it can answer as no library would. It serves one stream at a time.

#![allow(dead_code)] // Every test binary uses its own part of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does once it has read a whole request.
#[derive(Clone)]
pub(crate) struct Reply {
    /// Those of streams belong to the stream that the request came on.
    pub(crate) frames: Vec<Vec<u8>>,
    /// Whether the connection ends with them.
    pub(crate) is_closing: bool,
}

#[derive(Clone)]
pub(crate) struct H2 {
    pub(crate) url: String,
    requests: Arc<AtomicUsize>,
}

impl H2 {
    /// `script` gets the number of the request, counted over all connections from 0.
    pub(crate) async fn serve(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            requests: Arc::default(),
        };
        let requests = Arc::clone(&server.requests);
        let script = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (requests, script) = (Arc::clone(&requests), Arc::clone(&script));
                tokio::spawn(async move { converse(stream, &requests, &*script).await });
            }
        });
        server
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

async fn converse(
    mut stream: TcpStream,
    requests: &AtomicUsize,
    script: &(dyn Fn(usize) -> Reply + Send + Sync),
) -> std::io::Result<()> {
    const MAX_CONCURRENT_STREAMS: [u8; 6] = [0, 3, 0, 0, 0, 1];
    stream.read_exact(&mut [0; 24]).await?;
    stream
        .write_all(&frame(4, 0, &MAX_CONCURRENT_STREAMS))
        .await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await?;
        let is_end_of_request = matches!(head[3], 0 | 1) && head[4] & 1 == 1;
        if !is_end_of_request {
            continue;
        }
        let reply = script(requests.fetch_add(1, Ordering::SeqCst));
        for mut frame in reply.frames {
            if matches!(frame[3], 1 | 3) {
                frame[5..9].copy_from_slice(&head[5..9]);
            }
            stream.write_all(&frame).await?;
        }
        if reply.is_closing {
            return Ok(());
        }
    }
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}

/// 200 without a body: headers, with the flags that end both them and the stream.
pub(crate) fn fine() -> Vec<u8> {
    frame(1, 0x5, &[0x88])
}

/// The head of a 200 whose body is to follow.
pub(crate) fn begun() -> Vec<u8> {
    frame(1, 0x4, &[0x88])
}

pub(crate) fn reset(code: u32) -> Vec<u8> {
    frame(3, 0, &code.to_be_bytes())
}

pub(crate) fn go_away(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    frame(7, 0, &payload)
}
