//! A server made of a listener and a script: it counts connections and whole requests, and answers with raw bytes, so
//! that it can also answer as no HTTP library would.

#![allow(dead_code)] // Every test binary uses its own part of this.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest_jitter::JitteredRetryMiddleware;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does once it has read a whole request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends the pieces, with a pause of one millisecond between them, and keeps the connection.
    Send(Vec<Vec<u8>>),
    /// Sends the bytes and closes the connection.
    SendAndClose(Vec<u8>),
    /// Sends the bytes and resets the connection.
    SendAndReset(Vec<u8>),
    /// Sends the bytes and never anything again, but keeps the connection.
    SendAndStall(Vec<u8>),
    /// Sends the bytes again and again, for as long as somebody reads them.
    SendForever(Vec<u8>, Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Which connection it came on; the first is 0.
    pub(crate) connection: usize,
}

#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    most_open: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Received>>>,
}

impl Wire {
    /// `script` gets the number of the request, counted over all connections from 0.
    pub(crate) async fn serve(script: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            open: Arc::default(),
            most_open: Arc::default(),
            requests: Arc::default(),
        };
        let server = wire.clone();
        let script = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = server.connections.fetch_add(1, Ordering::SeqCst);
                let (server, script) = (server.clone(), Arc::clone(&script));
                tokio::spawn(async move {
                    let open = server.open.fetch_add(1, Ordering::SeqCst) + 1;
                    server.most_open.fetch_max(open, Ordering::SeqCst);
                    let _ = server.converse(stream, connection, &*script).await;
                    server.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        wire
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections that the server has not seen the end of.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The most connections that were open at the same time.
    pub(crate) fn most_open(&self) -> usize {
        self.most_open.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    async fn converse(
        &self,
        mut stream: TcpStream,
        connection: usize,
        script: &(dyn Fn(usize) -> Reply + Send + Sync),
    ) -> std::io::Result<()> {
        let mut buffer = Vec::new();
        while let Some((head, body)) = read_request(&mut stream, &mut buffer).await? {
            let number = {
                let mut requests = self.requests.lock().unwrap();
                requests.push(Received {
                    head,
                    body,
                    connection,
                });
                requests.len() - 1
            };
            match script(number) {
                Reply::Send(pieces) => {
                    for (number, piece) in pieces.iter().enumerate() {
                        if number > 0 {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        stream.write_all(piece).await?;
                    }
                }
                Reply::SendAndClose(bytes) => {
                    stream.write_all(&bytes).await?;
                    return stream.shutdown().await;
                }
                Reply::SendAndReset(bytes) => {
                    stream.write_all(&bytes).await?;
                    return stream.set_zero_linger();
                }
                Reply::SendAndStall(bytes) => {
                    stream.write_all(&bytes).await?;
                    // Until the client closes the connection.
                    while stream.read(&mut [0; 1024]).await? > 0 {}
                    return Ok(());
                }
                Reply::SendForever(head, bytes) => {
                    stream.write_all(&head).await?;
                    loop {
                        stream.write_all(&bytes).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads one request with a `Content-Length` or a chunked body, or none if the connection ends before it begins.
async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let end = loop {
        if let Some(end) = position(buffer, b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
    let field = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    let mut body = Vec::new();
    if field("transfer-encoding").is_some() {
        loop {
            let line = loop {
                if let Some(end) = position(buffer, b"\r\n") {
                    break buffer.drain(..end + 2).collect::<Vec<_>>();
                }
                if stream.read_buf(buffer).await? == 0 {
                    return Ok(None);
                }
            };
            let size =
                usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
            while buffer.len() < size + 2 {
                if stream.read_buf(buffer).await? == 0 {
                    return Ok(None);
                }
            }
            body.extend(buffer.drain(..size));
            buffer.drain(..2);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = field("content-length") {
        let length: usize = length.parse().unwrap();
        while buffer.len() < length {
            if stream.read_buf(buffer).await? == 0 {
                return Ok(None);
            }
        }
        body.extend(buffer.drain(..length));
    }
    Ok(Some((head, body)))
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// A whole answer with a `Content-Length`, head and body in one piece.
pub(crate) fn answer(status: u16, headers: &str, body: &[u8]) -> Reply {
    Reply::Send(vec![response(status, headers, body)])
}

pub(crate) fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status} Status\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

/// A reqwest client whose only retries are those of the layer under test.
pub(crate) fn plain() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .retry(reqwest::retry::never())
}

pub(crate) fn client(retry: JitteredRetryMiddleware) -> ClientWithMiddleware {
    ClientBuilder::new(plain().build().unwrap())
        .with(retry)
        .build()
}
