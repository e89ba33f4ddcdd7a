//! OCI image layouts: the directory form of container images (OCI Image Format Specification 1.1,
//! image-layout.md, image-index.md, manifest.md, descriptor.md).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ring::digest::{Algorithm, Context, SHA256, SHA512};
use serde_json::Value;

use crate::failure::{Code, Failure, Result};
use crate::files::failed::host;
use crate::files::meter::Meter;

/// Largest index, manifest or configuration that is read, bytes: registries allow 4 MiB.
const JSON_MOST: u64 = 4 << 20;
/// Most levels of indexes inside indexes.
const NESTED_MOST: usize = 8;
/// Most manifests and indexes that are read.
const MANIFESTS_MOST: usize = 1000;
/// Bytes that are hashed at a time.
const PART: usize = 1 << 18;

/// Whether a directory is an image layout.
pub(super) fn is_layout(dir: &Path) -> bool {
    dir.join("oci-layout").is_file() && dir.join("index.json").is_file()
}

/// The layers of the image for `platform` (this machine if it is not given), from the lowest up.
/// The digests of all that is used are checked.
///
/// # Errors
/// A file is missing, damaged or of an unknown kind; no image is for the platform; Ctrl-C.
pub(super) fn layers(dir: &Path, platform: Option<&str>, meter: &Meter) -> Result<Vec<PathBuf>> {
    let layout = Layout { dir, meter };
    let index = layout.json(&dir.join("index.json"))?;
    let mut found = Vec::new();
    layout.collect(&index, NESTED_MOST, &mut found)?;
    let manifest = layout.choose(&found, platform)?;
    let manifest = layout.checked(manifest)?;
    let layers = manifest.get("layers").and_then(Value::as_array);
    let layers = layers.ok_or_else(|| layout.bad("the manifest names no layers"))?;
    layers.iter().map(|layer| layout.layer(layer)).collect()
}

/// A layout that is being read.
struct Layout<'a> {
    dir: &'a Path,
    meter: &'a Meter,
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Layout<'_> {
    fn bad(&self, why: &str) -> Failure {
        let message = format!("the OCI layout {}: {why}", self.dir.display());
        Failure::new(Code::Usage, message)
            .hint("copy the image again, such as with skopeo copy docker://NAME oci:DIR")
    }

    fn json(&self, path: &Path) -> Result<Value> {
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|e| host("open", path, e))?;
        let read = file.take(JSON_MOST + 1).read_to_end(&mut bytes);
        read.map_err(|e| host("read", path, e))?;
        if bytes.len() as u64 > JSON_MOST {
            return Err(self.bad(&format!("{} is too long", path.display())));
        }
        let value = serde_json::from_slice(&bytes);
        value.map_err(|e| self.bad(&format!("{} is no JSON: {e}", path.display())))
    }

    /// Adds the manifests of an index, and of the indexes in it.
    fn collect(&self, index: &Value, depth: usize, found: &mut Vec<Value>) -> Result {
        let manifests = index.get("manifests").and_then(Value::as_array);
        let manifests = manifests.ok_or_else(|| self.bad("an index names no manifests"))?;
        for descriptor in manifests {
            let kind = text(descriptor, "mediaType");
            let is_index = kind.ends_with("index.v1+json") || kind.ends_with("list.v2+json");
            if !is_index {
                found.push(descriptor.clone());
            } else if depth > 0 {
                self.collect(&self.checked(descriptor)?, depth - 1, found)?;
            }
            if found.len() > MANIFESTS_MOST || depth == 0 {
                return Err(self.bad("it names too many images"));
            }
        }
        Ok(())
    }

    /// The first manifest for the platform. One without a platform has that of its configuration.
    fn choose<'m>(&self, found: &'m [Value], platform: Option<&str>) -> Result<&'m Value> {
        if let ([only], None) = (found, platform) {
            return Ok(only);
        }
        let wanted = Platform::wanted(platform);
        let mut others = Vec::new();
        for descriptor in found {
            let has = match descriptor.get("platform") {
                Some(platform) => Platform::of(platform),
                None => Platform::of(&self.configuration(descriptor)?),
            };
            if wanted.matches(&has) {
                return Ok(descriptor);
            }
            // Attestations have the platform unknown/unknown.
            if has.os != "unknown" {
                others.push(has.to_string());
            }
        }
        let message = format!(
            "the OCI layout {}: no image is for {wanted}",
            self.dir.display()
        );
        let hint = match others.is_empty() {
            true => "it has no image of a file system".to_owned(),
            false => format!("choose another with --platform: {}", others.join(", ")),
        };
        Err(Failure::new(Code::NotFound, message).hint(hint))
    }

    fn configuration(&self, descriptor: &Value) -> Result<Value> {
        let manifest = self.checked(descriptor)?;
        match manifest.get("config") {
            Some(config) => self.checked(config),
            None => Ok(Value::Null),
        }
    }

    /// The JSON that a descriptor names.
    fn checked(&self, descriptor: &Value) -> Result<Value> {
        let path = self.blob(descriptor)?;
        self.json(&path)
    }

    /// The archive of a layer.
    fn layer(&self, descriptor: &Value) -> Result<PathBuf> {
        let kind = text(descriptor, "mediaType");
        let is_tar = kind.contains(".tar") || kind.contains("tar+");
        if !is_tar || kind.ends_with("+encrypted") {
            return Err(self.bad(&format!("a layer of the kind {kind:?} cannot be unpacked")));
        }
        self.blob(descriptor)
    }

    /// The file that a descriptor names, whose size and digest are as it says.
    fn blob(&self, descriptor: &Value) -> Result<PathBuf> {
        let digest = text(descriptor, "digest");
        let known = digest.split_once(':').and_then(|(name, hex)| {
            let algorithm: &'static Algorithm = match name {
                "sha256" => &SHA256,
                "sha512" => &SHA512,
                _ => return None,
            };
            let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            let is_one = hex.len() == 2 * algorithm.output_len() && hex.bytes().all(is_hex);
            is_one.then_some((algorithm, name, hex))
        });
        let Some((algorithm, name, hex)) = known else {
            return Err(self.bad(&format!("{digest:?} is no digest of a known kind")));
        };
        let path = self.dir.join("blobs").join(name).join(hex);
        let (is, bytes) = self.digest(&path, algorithm)?;
        if is != hex {
            return Err(self.bad(&format!("the blob {digest} is damaged: its digest is {is}")));
        }
        match descriptor.get("size").and_then(Value::as_u64) {
            Some(size) if size != bytes => {
                Err(self.bad(&format!("the blob {digest} has {bytes} bytes, not {size}")))
            }
            _ => Ok(path),
        }
    }

    /// The digest of a file in hexadecimal, and its length, bytes.
    fn digest(&self, path: &Path, algorithm: &'static Algorithm) -> Result<(String, u64)> {
        let mut file = File::open(path).map_err(|e| host("open", path, e))?;
        let (mut context, mut bytes) = (Context::new(algorithm), 0);
        let mut buf = vec![0; PART];
        loop {
            self.meter.go_on()?;
            let n = file.read(&mut buf).map_err(|e| host("read", path, e))?;
            if n == 0 {
                break;
            }
            context.update(buf.get(..n).unwrap_or_default());
            bytes += n as u64;
        }
        let digest = context.finish();
        let hex = digest.as_ref().iter().map(|b| format!("{b:02x}"));
        Ok((hex.collect(), bytes))
    }
}

/// A platform, as the specification names it (after Go).
#[derive(Debug, PartialEq, Eq)]
struct Platform {
    os: String,
    architecture: String,
    /// Empty for any.
    variant: String,
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match self.variant.as_str() {
            "" => Ok(()),
            variant => write!(f, "/{variant}"),
        }
    }
}

impl Platform {
    /// The platform that was asked for as `OS/ARCH[/VARIANT]` or `ARCH`, else this machine.
    fn wanted(said: Option<&str>) -> Platform {
        let parts: Vec<&str> = said
            .map(|said| said.split('/').collect())
            .unwrap_or_default();
        let (os, architecture, variant) = match parts.as_slice() {
            [] => ("linux", this_machine(), ""),
            [architecture] => ("linux", *architecture, ""),
            [os, architecture] => (*os, *architecture, ""),
            [os, architecture, variant, ..] => (*os, *architecture, *variant),
        };
        Platform {
            os: os.into(),
            architecture: architecture.into(),
            variant: variant.into(),
        }
    }

    /// The platform of a descriptor or a configuration.
    fn of(value: &Value) -> Platform {
        Platform {
            os: text(value, "os").into(),
            architecture: text(value, "architecture").into(),
            variant: text(value, "variant").into(),
        }
    }

    fn matches(&self, has: &Platform) -> bool {
        self.os == has.os
            && self.architecture == has.architecture
            && (self.variant.is_empty() || self.variant == has.variant)
    }
}

/// Go's name of this machine's architecture.
fn this_machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "loongarch64" => "loong64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_chosen_by_what_is_said() {
        let has = |os: &str, architecture: &str, variant: &str| Platform {
            os: os.into(),
            architecture: architecture.into(),
            variant: variant.into(),
        };
        let arm = has("linux", "arm64", "v8");
        for (said, fits) in [
            ("arm64", true),
            ("linux/arm64", true),
            ("linux/arm64/v8", true),
            ("linux/arm64/v9", false),
            ("windows/arm64", false),
            ("amd64", false),
        ] {
            assert_eq!(Platform::wanted(Some(said)).matches(&arm), fits, "{said}");
        }
        assert!(Platform::wanted(None).matches(&has("linux", this_machine(), "")));
    }
}
