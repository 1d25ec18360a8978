package api

// Bound sets how many decisions a server holds.
func (s *Server) Bound(held int) { s.held.most = held }
