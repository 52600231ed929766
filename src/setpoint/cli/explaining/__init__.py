"""What a kind's fields are, told from the server's OpenAPI documents, laid out as kubectl does."""
