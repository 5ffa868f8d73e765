//! The reasons behind the defaults, a page for each question. There is nothing but documentation in here.

#[doc = include_str!("guide/safety.md")]
pub mod safety {}

#[doc = include_str!("guide/chain.md")]
pub mod chain {}

#[doc = include_str!("guide/time.md")]
pub mod time {}

#[doc = include_str!("guide/neighbours.md")]
pub mod neighbours {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/migration.md")]
pub mod migration {}

#[doc = include_str!("guide/observability.md")]
pub mod observability {}
