"""Opens what users pass as `X`: arrays, files, streams and objects of other libraries."""
