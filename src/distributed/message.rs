//! What travels between machines as bytes, and is read with checks.

use crate::error::{Error, Result};
use crate::persist::{self, Contents};

/// A pass, or what the driver and the ranges of a sweep send each other.
pub(crate) trait Message: Sized {
    /// The kind of its files.
    const KIND: &'static str;

    /// What errors call bytes that are read.
    const NAME: &'static str = "the message";

    fn put(&self, contents: &mut Contents);

    /// Reads what [`Message::put`] wrote, and checks everything.
    fn of_contents(contents: &Contents) -> Result<Self, String>;

    fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut contents = Contents::new(Self::KIND);
        self.put(&mut contents);
        persist::to_bytes(&contents)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let contents = persist::from_bytes(Self::NAME, bytes)?;
        let read = contents.must_be(Self::KIND).and_then(|()| Self::of_contents(&contents));
        read.map_err(|problem| Error::format(Self::NAME, problem))
    }
}
