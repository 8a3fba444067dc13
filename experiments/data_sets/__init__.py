"""From a public data set as it was downloaded to TFRecord files that training reads."""
