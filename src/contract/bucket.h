#pragma once
/* Archives in the operator's bucket (docs/archive.md): cay-job takes them there and back. Beside an
 * archive that is there lies its mark, and the archive is empty; an object without a mark goes.
 * Before an object is sent, a file by its key lies in BUCKET_DIR, until the bucket has said that
 * the object is gone. */

#define BUCKET_DIR       "bucket" /* of the state disk */
#define BUCKET_MARK      "bucket" /* of a layer: "KEY SHA256 BYTES" */
#define BUCKET_KEY_CHARS 32       /* random: small letters and digits */
#define BUCKET_PREFIX    "cay/"   /* of the object's name */
#define BUCKET_SUFFIX    ".squashfs"

/* cay-job's environment, where cay-privd has a bucket: base/bucket.h. */
#define BUCKET_ENV_NAME        "CAY_BUCKET"
#define BUCKET_ENV_ENDPOINT    "CAY_BUCKET_ENDPOINT"
#define BUCKET_ENV_REGION      "CAY_BUCKET_REGION"
#define BUCKET_ENV_CREDENTIALS "CAY_BUCKET_CREDENTIALS"
#define BUCKET_ENV_CA_FILE     "CAY_BUCKET_CA_FILE"
