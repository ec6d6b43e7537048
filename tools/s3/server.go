//go:build tools

// The S3 server that the object store is tested against.
package server

import _ "github.com/versity/versitygw/cmd/versitygw"
