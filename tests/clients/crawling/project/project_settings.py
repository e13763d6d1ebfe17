"""The settings of a usual project, except for the telnet console. The tests pass all others with `scrapy crawl -s`."""

SPIDER_MODULES = ["spiders"]
ITEM_PIPELINES = {"spiders.Journal": 300}
ROBOTSTXT_OBEY = False
TELNETCONSOLE_ENABLED = False
CONCURRENT_REQUESTS = 16
CONCURRENT_REQUESTS_PER_DOMAIN = 16
DOWNLOAD_DELAY = 0
