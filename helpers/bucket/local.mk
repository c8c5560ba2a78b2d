pkglibexec_PROGRAMS += cove-bucket
cove_bucket_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS)
cove_bucket_SOURCES = helpers/bucket/bucket.c helpers/bucket/owner.c helpers/bucket/objects.c helpers/bucket/listing.c \
	helpers/bucket/s3.c helpers/bucket/credentials.c helpers/bucket/bucket_private.h
cove_bucket_LDADD = libprocess.a libclient.a libbase.a $(SECCOMP_LIBS) $(CURL_LIBS) $(CRYPTO_LIBS)
EXTRA_DIST += helpers/bucket/README.md
