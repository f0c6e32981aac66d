//! Uploads in parts that were begun and neither completed nor taken back: a store keeps their parts, out of sight and for money.
//!
//! Owns taking them back: those of this process, whatever kept it from doing so at once, and on S3 those of processes that
//! died. Everything here is best effort and is tried again: what stays harms nobody. Azure drops them after a week by itself; in
//! Google's store a rule of the bucket does.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Name;
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{ClientOptions, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload, UploadPart};
use parking_lot::Mutex;
use serde::Deserialize;

use super::Blob;

/// How long a signed request is good for.
const GOOD_FOR: Duration = Duration::from_secs(300);

/// How long a listing may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pages of a listing that are read in one cleaning; a page has up to 1,000 uploads.
const PAGES: usize = 100;

/// Uploads of this process that are of no use any more and are not taken back yet.
pub(super) type Left = Arc<Mutex<Vec<Box<dyn MultipartUpload>>>>;

/// An upload in parts; where it is not completed, it is left to be taken back.
pub(super) struct Upload {
    /// None once it is completed.
    upload: Option<Box<dyn MultipartUpload>>,
    left: Left,
}

impl Upload {
    pub(super) async fn begin(store: &dyn ObjectStore, name: &Name, left: &Left) -> object_store::Result<Self> {
        let upload = store.put_multipart(name).await?;
        Ok(Self { upload: Some(upload), left: Arc::clone(left) })
    }

    /// Sends the next part once what it returns is waited for.
    pub(super) fn put_part(&mut self, part: PutPayload) -> Option<UploadPart> {
        self.upload.as_mut().map(|upload| upload.put_part(part))
    }

    /// Makes the object of the parts.
    pub(super) async fn complete(&mut self) -> object_store::Result<()> {
        if let Some(upload) = &mut self.upload {
            upload.complete().await?;
        }
        self.upload = None;
        Ok(())
    }

    /// It is of no use any more.
    pub(super) async fn take_back(mut self) {
        if let Some(upload) = &mut self.upload
            && is_taken_back(upload.as_mut()).await
        {
            self.upload = None;
        }
    }
}

async fn is_taken_back(upload: &mut dyn MultipartUpload) -> bool {
    let taken_back = tokio::time::timeout(PATIENCE, upload.abort()).await;
    matches!(taken_back, Ok(Ok(()) | Err(object_store::Error::NotFound { .. })))
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.left.lock().extend(self.upload.take());
    }
}

impl Blob {
    /// Takes back the uploads in parts that this process began and did not complete, as far as the store lets it. Those for which it
    /// does not are tried again at the next call.
    pub async fn take_back_uploads(&self) {
        let left = mem::take(&mut *self.left.lock());
        for mut upload in left {
            if !is_taken_back(upload.as_mut()).await {
                tracing::debug!(store = %self.location, "an upload that failed could not be taken back yet");
                self.left.lock().push(upload);
            }
        }
    }

    /// Takes back the uploads in parts that anyone has open below `folder`. A writer that is alive writes again.
    pub(super) async fn take_back_all_uploads(&self, folder: &str) {
        let (Some(open), Ok(folder)) = (&self.uploads, self.path(folder)) else { return };
        match tokio::time::timeout(PATIENCE, open.take_back(&folder)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(uploads)) => tracing::debug!(uploads, "uploads of dead attempts were taken back"),
            Ok(Err(error)) => tracing::debug!(error, "uploads that dead attempts left open stay for now"),
            Err(_) => tracing::debug!("uploads that dead attempts left open stay for now: no answer"),
        }
    }
}

/// Finds open uploads in a bucket of S3, which the library does not.
#[derive(Debug, Clone)]
pub(super) struct OpenUploads {
    store: Arc<AmazonS3>,
    client: HttpClient,
}

/// A page of the listing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default)]
    upload: Vec<Open>,
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: String,
    #[serde(default)]
    next_upload_id_marker: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Open {
    key: String,
    upload_id: String,
}

impl OpenUploads {
    pub(super) fn new(store: Arc<AmazonS3>) -> object_store::Result<Self> {
        let client = ReqwestConnector::default().connect(&ClientOptions::new().with_allow_http(true))?;
        Ok(Self { store, client })
    }

    /// Takes back all below `folder`; returns how many.
    async fn take_back(&self, folder: &Name) -> Result<usize, String> {
        let mut taken_back = 0;
        let mut after = (String::new(), String::new());
        for _ in 0..PAGES {
            let page = self.page(folder, &after).await?;
            for Open { key, upload_id } in page.upload {
                let Ok(name) = Name::parse(&key) else { continue };
                // Servers differ in what a prefix without a slash at its end means.
                if name.prefix_match(folder).is_some() {
                    self.store.abort_multipart(&name, &upload_id).await.map_err(|error| error.to_string())?;
                    taken_back += 1;
                }
            }
            if !page.is_truncated {
                break;
            }
            after = (page.next_key_marker, page.next_upload_id_marker);
        }
        Ok(taken_back)
    }

    async fn page(&self, folder: &Name, (key, id): &(String, String)) -> Result<Page, String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let mut query = vec![("uploads", String::new()), ("prefix", format!("{folder}/"))];
        if !key.is_empty() {
            query.extend([("key-marker", key.clone()), ("upload-id-marker", id.clone())]);
        }
        let options = SignedUrlOptions::new().with_query(query);
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        let method = request.method().clone();
        let url = self.store.signed_url_opts(method, &Name::default(), GOOD_FOR, &options).await;
        *request.uri_mut() =
            url.map_err(|error| said(&error))?.as_str().parse().map_err(|_| "no address".to_owned())?;
        let (parts, body) = self.client.execute(request).await.map_err(|error| said(&error))?.into_parts();
        let body = body.bytes().await.map_err(|error| said(&error))?;
        if !parts.status.is_success() {
            return Err(format!("open uploads cannot be listed: {}", parts.status));
        }
        quick_xml::de::from_str(&String::from_utf8_lossy(&body)).map_err(|error| said(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_open_uploads_is_read_whatever_else_it_says() {
        let page = r#"<?xml version="1.0" encoding="UTF-8"?>
            <ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Bucket>b</Bucket>
            <NextKeyMarker>k2</NextKeyMarker><NextUploadIdMarker>u2</NextUploadIdMarker><IsTruncated>true</IsTruncated>
            <Upload><Key>k1</Key><UploadId>u1</UploadId><Owner><ID>x</ID></Owner></Upload>
            <Upload><Key>k2</Key><UploadId>u2</UploadId></Upload></ListMultipartUploadsResult>"#;
        let page: Page = quick_xml::de::from_str(page).unwrap();
        let found: Vec<_> = page.upload.iter().map(|open| (open.key.as_str(), open.upload_id.as_str())).collect();
        assert_eq!(found, [("k1", "u1"), ("k2", "u2")]);
        assert!(page.is_truncated && page.next_key_marker == "k2" && page.next_upload_id_marker == "u2");
        let none: Page = quick_xml::de::from_str("<ListMultipartUploadsResult/>").unwrap();
        assert!(none.upload.is_empty() && !none.is_truncated);
    }
}
