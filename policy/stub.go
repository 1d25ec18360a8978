package policy

type (
	matcher struct{}
	pattern struct{}
	plan    struct{}
	key     struct{}
)
