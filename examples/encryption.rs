//! Values that are encrypted in Redis, with a key that is rotated: old values stay readable, new ones use the new key.
//!
//! Run it with `cargo run -p heartline-examples --example encryption`. It uses the Redis of `REDIS_URL`, or a private server.

use std::collections::BTreeMap;

use chacha20poly1305::aead::{Aead, AeadCore, KeyInit, OsRng};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use heartline::{App, Context, JobError, JobValues, PayloadCodec, TaskDef};

const LETTER: TaskDef<String, String> = TaskDef::new("letter");

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Encrypts with the newest key. A value is the id of its key, a nonce, and the encrypted bytes.
#[derive(Clone)]
struct Encryption {
    keys: BTreeMap<u8, XChaCha20Poly1305>,
}

/// The bytes of a nonce.
const NONCE: usize = 24;

impl Encryption {
    fn new(keys: &[(u8, Key)]) -> Encryption {
        Encryption { keys: keys.iter().map(|(id, key)| (*id, XChaCha20Poly1305::new(key))).collect() }
    }
}

impl PayloadCodec for Encryption {
    fn name(&self) -> &str {
        "xchacha20"
    }

    fn encode(&self, json: &[u8]) -> Result<Vec<u8>, Fault> {
        let (id, cipher) = self.keys.last_key_value().ok_or("there is no key")?;
        let nonce = XChaCha20Poly1305::generate_nonce(&mut OsRng);
        let encrypted = cipher.encrypt(&nonce, json).map_err(|_| "the value cannot be encrypted")?;
        Ok([&[*id], &nonce[..], &encrypted].concat())
    }

    fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>, Fault> {
        let (id, rest) = encoded.split_first().ok_or("the value is empty")?;
        let (nonce, encrypted) = rest.split_at_checked(NONCE).ok_or("the value is too short")?;
        let cipher = self.keys.get(id).ok_or_else(|| format!("there is no key {id}"))?;
        let decrypted = cipher.decrypt(XNonce::from_slice(nonce), encrypted);
        decrypted.map_err(|_| "the value was changed, or its key is another one".into())
    }
}

async fn letter(_: Context, name: String) -> Result<String, JobError> {
    Ok(format!("Dear {name}"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (_server, url) = heartline::testing::redis_url().await?;
    let app = App::builder().redis(url).prefix(format!("encryption-{}", uuid::Uuid::now_v7()));
    // In a real program the keys come from a secret store.
    let (first, second) = (XChaCha20Poly1305::generate_key(&mut OsRng), XChaCha20Poly1305::generate_key(&mut OsRng));
    let before = app.clone().codec(Encryption::new(&[(1, first)])).build().await?;
    let old = LETTER.dispatch(&before, "Ada".to_owned()).await?;

    // After the rotation: the new key for new values, and the old one for as long as values of it exist.
    let after = app.clone().codec(Encryption::new(&[(1, first), (2, second)])).build().await?;
    after.register(LETTER.handler(letter))?;
    let worker = after.worker().spawn();
    let new = LETTER.dispatch(&after, "Grace".to_owned()).await?;
    for job in [LETTER.dispatch(&after, "Edsger".to_owned()).await?, new] {
        println!("{}", job.result().await?);
    }
    println!("{}", after.task_ref_for(&LETTER)?.handle(old.id())?.result().await?);

    // Without the codec, this is what people see.
    let plain = app.build().await?.inspector();
    let seen = plain.job(LETTER.name(), old.id().as_str(), JobValues::All).await?;
    let payload = seen.and_then(|job| job.payload).unwrap_or_default();
    println!("payload: {payload}");
    anyhow::ensure!(payload.to_string().contains("encoded by `xchacha20`"));
    println!("the worker stopped: {}", worker.stop().await?);
    Ok(())
}
