// Package accesslog reads access logs in the common and the combined format, as Apache and nginx
// write them, and yields their records in the order of time.
//
//	203.0.113.7 - alice [17/May/2015:10:05:03 +0000] "GET /api?q=1 HTTP/1.1" 200 512 "-" "curl/8"
//
// A line that starts with the virtual host (Apache's vhost_combined) is understood too. What
// follows the user agent is ignored.
package accesslog
